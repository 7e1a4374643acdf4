"""How calls are read: by the main thread, or by the thread of a pool whose turn it is; and how both are woken."""
import os
import select
import threading

from .failures import log
from .protocol import ProtocolError


class MainReader(object):
    """
    Waits with poll(2), not epoll: a sender wakes a poller at once on its own processor, an epoll waiter on another one, which
    costs half as much again as a whole call. Only the thread that reads touches the set of descriptors: the main thread, or after
    `share` the one of the pool that reads. The control thread says what it wants (`place`, `retire`) and wakes it.
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
        #: Where the thread that reads is woken.
        self._ear = self._wake_in
        self._pool_pipe = ()
        self._poll.register(self._wake_in, select.POLLIN)

    def descriptors(self):
        return [self._wake_in, self._wake_out] + list(self._pool_pipe)

    def wake_descriptor(self):
        """A byte written here ends the main thread's wait."""
        return self._wake_out

    # Any thread.

    def wake(self):
        """Ends the main thread's wait."""
        try:
            os.write(self._wake_out, b'.')
        except BlockingIOError:  # it has plenty of reasons already
            pass

    def place(self, connection, by_main):
        """Has the main thread read the connection, or not any more. For a moment two threads may read it: see Connection."""
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
        """Closes a connection: now, or when the main thread has let go of its descriptor."""
        with self._lock:
            self._wanted.pop(connection.fd, None)
            if connection.fd in self._watched:
                self._is_stale = True
                connection.is_retired = True
            else:
                connection.close()
                return
        self.wake()

    # The thread that reads.

    def wait(self):
        """Waits until there is something, and reads what there is."""
        for fd, _ in self._wait():
            connection = self._watched.get(fd)
            if connection is None:
                self._on_wake()
            elif not read(connection):
                self._let_go(connection)
        if self._is_stale:
            self._refresh()

    # The main thread.

    def share(self, pipe):
        """From now on threads of a pool call `wait`, one at a time, and the main thread `pass_on`. The pipe wakes them."""
        self._pool_pipe = pipe
        self._ear = pipe[0]
        self._poll.unregister(self._wake_in)
        self._poll.register(self._ear, select.POLLIN)
        poll = select.poll()
        poll.register(self._wake_in, select.POLLIN)
        self._wait_to_pass_on = poll.poll

    def pass_on(self, milliseconds):
        """Waits until the main thread is woken, -1 for as long as that takes, and wakes the thread that reads."""
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
        """From now on an asyncio loop of the main thread waits; `on_read` is called when something was read, or on `wake`."""
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
        except BlockingIOError:  # not a wake: a descriptor that was let go of in this turn
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
        """Of a connection that has ended; the control thread sees it too, and retires it."""
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
    """One on which nobody is ever held up."""
    pipe = os.pipe()
    for descriptor in pipe:
        os.set_blocking(descriptor, False)
    return pipe


def end_without_descriptors(error):
    """
    In an except clause around a call of the kernel: user code has closed what the runtime waits for, which would wait for ever, or
    never again. An exception of a signal handler of the user's code, which may hit there too, is raised again.
    """
    if error.__traceback__.tb_next is not None:  # raised in a frame of its own, not by the kernel's answer
        raise error
    log("rookery_runtime: ended, since the code has closed the runtime's descriptors: %s" % error)
    os._exit(1)


def read(connection):
    """Reads once. False: the connection is of no use any more; the control thread ends it."""
    try:
        if connection.receive():
            return True
    except ProtocolError as error:
        log('rookery_runtime: closed a connection: %s' % error)
    connection.shut()
    return False


def read_rest(connection, most):
    """Reads what waits in the kernel, at most that many times."""
    waiting = select.poll()
    waiting.register(connection.fd, select.POLLIN)
    for _ in range(most):
        if not waiting.poll(0) or not read(connection):
            return
