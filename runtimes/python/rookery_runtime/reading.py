"""Reads calls in the main thread, or in one thread of a pool at a time, and wakes these threads."""
import os
import select
import threading

from .failures import log
from .protocol import ProtocolError


class MainReader(object):
    """
    Waits for calls with poll(2).

    A sender wakes a poller on the sender's processor, but an epoll waiter on another one, which adds half of
    the cost of a whole call. Only the thread that reads changes the set of descriptors. That is the main
    thread, or after `share` the pool's current reader. The control thread requests changes with `place` and
    `retire`, which wake the reader.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._wait = self._poll.poll
        self._loop = None
        self._watched = {}
        self._wanted = {}
        self._is_stale = False
        self._wake_in, self._wake_out = make_pipe()
        #: Read end of the pipe that wakes the thread that reads.
        self._ear = self._wake_in
        self._pool_pipe = ()
        self._poll.register(self._wake_in, select.POLLIN)

    def descriptors(self):
        return [self._wake_in, self._wake_out] + list(self._pool_pipe)

    def wake_descriptor(self):
        """Returns a descriptor. A byte written to it ends the main thread's wait."""
        return self._wake_out

    # Methods for any thread.

    def wake(self):
        """Ends the main thread's wait."""
        try:
            os.write(self._wake_out, b'.')
        except BlockingIOError:  # the pipe is full, so the thread wakes up anyway
            pass

    def place(self, connection, by_main):
        """
        Requests that the main thread reads the connection, or stops reading it.

        For a moment two threads may read the connection: see Connection.
        """
        with self._lock:
            if by_main == (connection.fd in self._wanted):
                return
            if by_main:
                self._wanted[connection.fd] = connection
            else:
                del self._wanted[connection.fd]
            self._is_stale = True
        self.wake()

    def retire(self, connection):
        """Closes a connection now, or as soon as the main thread no longer watches its descriptor."""
        with self._lock:
            self._wanted.pop(connection.fd, None)
            if connection.fd in self._watched:
                self._is_stale = True
                connection.is_retired = True
            else:
                connection.close()
                return
        self.wake()

    # Methods for the thread that reads.

    def wait(self):
        """Waits until a descriptor is ready, and reads the available bytes."""
        for fd, _ in self._wait():
            connection = self._watched.get(fd)
            if connection is None:
                self._on_wake()
            elif not read(connection):
                self._let_go(connection)
        if self._is_stale:
            self._refresh()

    # Methods for the main thread.

    def share(self, pipe):
        """
        Transfers reading to the threads of a pool, which call `wait` one at a time. The main thread calls
        `pass_on`.

        `pipe` wakes the pool's threads.
        """
        self._pool_pipe = pipe
        self._ear = pipe[0]
        self._poll.unregister(self._wake_in)
        self._poll.register(self._ear, select.POLLIN)
        poll = select.poll()
        poll.register(self._wake_in, select.POLLIN)
        self._wait_to_pass_on = poll.poll

    def pass_on(self, milliseconds):
        """Waits until the main thread is woken, and wakes the thread that reads. -1 waits without limit."""
        self._wait_to_pass_on(milliseconds)
        try:
            try:
                os.read(self._wake_in, 4096)
            finally:  # also when a signal handler of the user's code raises in between
                os.write(self._pool_pipe[1], b'.')
        except BlockingIOError:
            pass
        except OSError as error:
            end_without_descriptors(error)

    def use_loop(self, loop, on_read):
        """
        Lets an asyncio loop of the main thread wait instead.

        Calls `on_read` after each read and each `wake`.
        """
        self._loop = loop
        self._on_read = on_read
        loop.add_reader(self._wake_in, self._on_loop_wake)
        for connection in self._watched.values():
            loop.add_reader(connection.fd, self._on_loop_read, connection)

    def _on_loop_wake(self):
        self._on_wake()
        self._on_read()

    def _on_loop_read(self, connection):
        if not read(connection):
            self._let_go(connection)
        self._on_read()

    def _on_wake(self):
        try:
            os.read(self._ear, 4096)
        except BlockingIOError:  # not a wake: this descriptor was unregistered during this turn
            pass
        except OSError as error:
            end_without_descriptors(error)
        self._refresh()

    def _refresh(self):
        with self._lock:
            if not self._is_stale:
                return
            self._is_stale = False
            for fd, connection in list(self._watched.items()):
                if self._wanted.get(fd) is not connection:
                    self._unwatch(connection)
            for fd, connection in self._wanted.items():
                if fd not in self._watched:
                    self._watched[fd] = connection
                    if self._loop is None:
                        self._poll.register(fd, select.POLLIN)
                    else:
                        self._loop.add_reader(fd, self._on_loop_read, connection)

    def _let_go(self, connection):
        """
        Stops watching a connection that has ended.

        The control thread detects the end too, and retires it.
        """
        with self._lock:
            self._wanted.pop(connection.fd, None)
            if connection.fd in self._watched:
                self._unwatch(connection)

    def _unwatch(self, connection):
        del self._watched[connection.fd]
        if self._loop is None:
            self._poll.unregister(connection.fd)
        else:
            self._loop.remove_reader(connection.fd)
        if connection.is_retired:
            connection.close()


def make_pipe():
    """Returns a pipe with both ends non-blocking."""
    pipe = os.pipe()
    for descriptor in pipe:
        os.set_blocking(descriptor, False)
    return pipe


def end_without_descriptors(error):
    """
    Ends the process with exit code 1 because user code has closed descriptors of the runtime. Called in an
    except clause.

    Otherwise the runtime would wait for ever, or spin. Raises `error` again if a signal handler of the user's
    code raised it, since such an exception may arrive in the same place.
    """
    if error.__traceback__.tb_next is not None:  # raised in a Python frame, not by the system call
        raise error
    log("rookery_runtime: ended, since the code has closed the runtime's descriptors: %s" % error)
    os._exit(1)


def read(connection):
    """Reads once. Returns False if the connection can no longer be used; the control thread then ends it."""
    try:
        if connection.receive():
            return True
    except ProtocolError as error:
        log('rookery_runtime: closed a connection: %s' % error)
    connection.shut()
    return False


def read_rest(connection, most):
    """Reads the bytes that wait in the kernel, with at most `most` reads."""
    waiting = select.poll()
    waiting.register(connection.fd, select.POLLIN)
    for _ in range(most):
        if not waiting.poll(0) or not read(connection):
            return
