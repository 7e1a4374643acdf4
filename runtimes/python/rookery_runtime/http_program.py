"""The user's HTTP server: started, waited for, watched and ended."""
import errno
import http.client
import os
import signal
import socket
import subprocess
import threading
import time

from .failures import log
from .http_exchange import Connection

ADDRESS = ('127.0.0.1', 8000)
_START_VARIABLE = 'HTTP_START_SECONDS'
_START_SECONDS = 45.0
_MOST_START_SECONDS = 3600.0
_STEP_SECONDS = 0.01
_HEALTH_SECONDS = 2.0
#: Answers that say that there is no such page: the server listens, and that has to do.
_NO_HEALTH_PAGE = (404, 405, 501)
#: What a server that is asked to end has, when the grace of the stop is not shorter.
_END_SECONDS = 10.0
#: How much later the end of a program may be seen than that of its connections.
_LOST_SECONDS = 0.2


class NotServing(Exception):
    """It did not come to serve; the text is for the caller of the create."""


class HttpProgram(object):
    def __init__(self, argv, env=None, ignores=()):
        """`ignores`: signals that this process ignores and the program must not."""
        self._name = os.path.basename(argv[0])
        self._is_ending = False

        def attend():
            for number in ignores:
                signal.signal(number, signal.SIG_DFL)

        try:
            # A group of its own, so that all of it can be asked to end.
            self._process = subprocess.Popen(argv, env=env, start_new_session=True, preexec_fn=attend if ignores else None)
        except (OSError, ValueError) as error:
            raise NotServing('%s cannot be executed: %s' % (argv[0], getattr(error, 'strerror', None) or error))

    def has_ended(self):
        return self._process.poll() is not None

    def wait(self):
        """Its return code, negative for a signal."""
        return self._process.wait()

    def serves(self):
        """Whether it answers on its port now, as `wait_until_ready` says."""
        return _look() is None

    def wait_until_ready(self):
        """Until `GET /healthz` is answered with 200, or there is no such page. Fails with NotServing."""
        seconds = _start_seconds()
        deadline = time.monotonic() + seconds
        seen = 'nothing listens on %s:%d' % ADDRESS
        while True:
            code = self._process.poll()
            if code is not None:
                raise NotServing('%s ended with %s before it served: %s' % (self._name, _exit_text(code), seen))
            state = _look()
            if state is None:
                return
            seen = state
            if time.monotonic() >= deadline:
                raise NotServing('%s did not serve within %g s: %s' % (self._name, seconds, seen))
            time.sleep(_STEP_SECONDS)

    def wait_for_end(self):
        """A moment, after a connection that broke: the end of the program is seen later than that of its connections."""
        deadline = time.monotonic() + _LOST_SECONDS
        while time.monotonic() < deadline:
            time.sleep(_STEP_SECONDS)
            if self.has_ended():
                # The watcher ends this process now.
                time.sleep(_LOST_SECONDS)

    def watch(self):
        """From now on its end is the end of this process, whose exit code becomes its own."""
        threading.Thread(target=self._end_with_it, name='http-program', daemon=True).start()

    def stop(self):
        """SIGTERM to its group; returns when it has ended, or its time is over (what is left is killed with the sandbox)."""
        self._is_ending = True
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(_STEP_SECONDS)
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
            raise NotServing('%s did not end within %g s of SIGTERM' % (self._name, _END_SECONDS))

    def kill(self):
        self._is_ending = True
        self._signal(signal.SIGKILL)

    def _signal(self, number):
        try:
            os.killpg(self._process.pid, number)
        except OSError:  # it has ended
            pass

    def _end_with_it(self):
        code = self._process.wait()
        if self._is_ending:
            return
        log('%s has ended with %s' % (self._name, _exit_text(code)))
        os._exit(code if code >= 0 else 128 - code)


class Neighbour(HttpProgram):
    """One that something else starts and ends: it only serves here."""

    def __init__(self):
        self._name = 'the program of the image'
        self._process = self
        self._is_ending = False

    def poll(self):
        """Of a process: as far as can be seen here, it runs."""
        return None

    def wait_for_end(self):
        pass

    def watch(self):
        pass

    def stop(self):
        pass

    def kill(self):
        pass


def _look():
    """None when it serves, else what is seen instead."""
    connection = Connection(ADDRESS, time.monotonic() + _HEALTH_SECONDS)
    try:
        connection.request('GET', '/healthz')
        status = connection.getresponse().status
    except socket.timeout:
        return 'GET /healthz is not answered'
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            return 'nothing listens on %s:%d' % ADDRESS
        return 'GET /healthz failed: %s' % error
    except http.client.HTTPException as error:
        return 'GET /healthz is not answered in HTTP: %s' % type(error).__name__
    finally:
        connection.close()
    if status == 200 or status in _NO_HEALTH_PAGE:
        return None
    return 'GET /healthz is answered with status %d' % status


def _start_seconds():
    try:
        seconds = float(os.environ.get(_START_VARIABLE, _START_SECONDS))
    except ValueError:
        return _START_SECONDS
    return seconds if 0 < seconds <= _MOST_START_SECONDS else _START_SECONDS


def _exit_text(code):
    return 'signal %d' % -code if code < 0 else 'exit code %d' % code
