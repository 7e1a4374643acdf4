"""Starts the user's HTTP server, waits until it is ready, watches it and ends it."""
import errno
import http.client
import os
import re
import signal
import socket
import subprocess
import threading
import time

from .failures import log
from .http_exchange import Connection
from .http_profile import HttpProfile

#: Address of the server of profile `http`. A server of another profile listens on another port.
ADDRESS = ('127.0.0.1', 8000)
_START_VARIABLE = 'HTTP_START_SECONDS'
_START_SECONDS = 45.0
_MOST_START_SECONDS = 3600.0
_STEP_SECONDS = 0.01
_HEALTH_SECONDS = 2.0
#: Statuses that mean that the page does not exist. The server listens, which is enough.
_NO_HEALTH_PAGE = (404, 405, 501)
#: Time that a server has to end after SIGTERM, unless the grace of the STOP is shorter.
_END_SECONDS = 10.0
#: Time by which the end of a program may become visible later than the end of its connections.
_LOST_SECONDS = 0.2
#: Exit code of a shell and of `env` when they do not find the program.
_EXIT_NOT_FOUND = 127
_FIRST_LINE_BYTES = 256


class NotServing(Exception):
    """The server did not become ready. The text is for the caller that creates the instance."""


class HttpProgram(object):
    profile = HttpProfile()

    def __init__(self, argv, env=None, ignores=(), profile=None):
        """
        Starts the program. Raises NotServing if that fails.

        `ignores` lists signals that this process ignores and the program must not ignore.
        """
        if profile is not None:
            self.profile = profile
        self._name = self._name_of(argv)
        self._path = argv[0]
        self._is_ending = False

        def attend():
            for number in ignores:
                signal.signal(number, signal.SIG_DFL)

        try:
            # The program gets its own process group, so that the whole group can be signalled.
            self._process = subprocess.Popen(argv, env=env, start_new_session=True, preexec_fn=attend if ignores else None)
        except (OSError, ValueError) as error:
            raise NotServing('%s cannot be executed: %s' % (argv[0], _why_not_executed(argv[0], error)))

    def _name_of(self, argv):
        # Only the framework's profile starts a shell, which finds the framework.
        return self.profile.name if argv[:2] == ['/bin/sh', '-c'] else os.path.basename(argv[0])

    def has_ended(self):
        return self._process.poll() is not None

    def wait(self):
        """Waits for the program's end and returns its return code, which is negative for a signal."""
        return self._process.wait()

    def serves(self):
        """Returns True if the program answers on its port now, by the rule of `wait_until_ready`."""
        return _look(self.profile) is None

    def wait_until_ready(self):
        """
        Waits until the probe of the profile is answered with 200, or with a status that means that there is
        no such page. Without a probe, waits until the program listens.

        Raises NotServing if the program ends first, or after HTTP_START_SECONDS (default: 45 s).
        """
        seconds = _start_seconds()
        deadline = time.monotonic() + seconds
        seen = 'nothing listens on %s:%d' % address_of(self.profile)
        while True:
            code = self._process.poll()
            if code is not None:
                hint = _hint_of_line_ends(self._path) if code == _EXIT_NOT_FOUND else ''
                raise NotServing('%s ended with %s before it served%s: %s' % (
                    self._name, _exit_text(code), hint, seen))
            state = _look(self.profile)
            if state is None:
                return
            seen = state
            if time.monotonic() >= deadline:
                raise NotServing('%s did not serve within %g s: %s' % (self._name, seconds, seen))
            time.sleep(_STEP_SECONDS)

    def wait_for_end(self):
        """
        Waits up to 0.2 s for the program's end, after a connection broke.

        The program's end becomes visible later than the end of its connections.
        """
        deadline = time.monotonic() + _LOST_SECONDS
        while time.monotonic() < deadline:
            time.sleep(_STEP_SECONDS)
            if self.has_ended():
                # The watcher ends this process now.
                time.sleep(_LOST_SECONDS)

    def watch(self):
        """Ends this process with the program's exit code (128 + number of a signal) when the program ends."""
        threading.Thread(target=self._end_with_it, name='http-program', daemon=True).start()

    def stop(self):
        """
        Sends SIGTERM to the program's group and waits up to 10 s for the end of the program.

        Raises NotServing after that time, and sends SIGKILL. The sandbox kills whatever is left.
        """
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
        except OSError:  # the group has ended
            pass

    def _end_with_it(self):
        code = self._process.wait()
        if self._is_ending:
            return
        log('%s has ended with %s' % (self._name, _exit_text(code)))
        os._exit(code if code >= 0 else 128 - code)


class Neighbour(HttpProgram):
    """A server that another process starts and ends. This class only sends requests to it."""

    def __init__(self):
        self._name = self._path = 'the program of the image'
        self._process = self
        self._is_ending = False

    def poll(self):
        """
        Replaces the method of a process: always reports that the program runs, as its end cannot be seen
        here.
        """
        return None

    def wait_for_end(self):
        pass

    def watch(self):
        pass

    def stop(self):
        pass

    def kill(self):
        pass


def address_of(profile):
    """Returns the address of the server."""
    return ADDRESS if profile.port is None else (ADDRESS[0], profile.port)


def _look(profile=HttpProfile()):
    """Returns None when the server is ready, or a text about the observed failure."""
    connection = Connection(address_of(profile), time.monotonic() + _HEALTH_SECONDS)
    probe = 'GET %s' % profile.probe
    try:
        if profile.probe is None:
            connection.connect()
            return None
        connection.request('GET', profile.probe)
        status = connection.getresponse().status
    except socket.timeout:
        return '%s is not answered' % probe
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            return 'nothing listens on %s:%d' % address_of(profile)
        return '%s failed: %s' % (probe, error)
    except http.client.HTTPException as error:
        return '%s is not answered in HTTP: %s' % (probe, type(error).__name__)
    finally:
        connection.close()
    if status == 200 or not profile.is_probe_strict and status in _NO_HEALTH_PAGE:
        return None
    return '%s is answered with status %d' % (probe, status)


def _why_not_executed(path, error):
    """Returns the system's reason, or names the interpreter or loader that an existing program lacks."""
    first = _first_line(path)
    if getattr(error, 'errno', None) == errno.ENOENT and first:
        if not first.startswith(b'#!'):
            return 'the loader that it was linked with is not here: it was built for another system'
        name = re.split(b'[ \t\n]', first[2:].lstrip(b' \t'), 1)[0]
        shown = name.decode('utf-8', 'backslashreplace').replace('\r', '\\r')
        return 'its first line names %s, which does not exist%s' % (shown, _hint_of_line_ends(path))
    if getattr(error, 'errno', None) == errno.ENOEXEC:
        return 'it is neither a program of this machine nor a script whose first line names its interpreter'
    # Before Python 3.8 the text of an error of a child's exec ends with its path.
    number = getattr(error, 'errno', None)
    return error if number is None else os.strerror(number)


def _hint_of_line_ends(path):
    return ' (Windows line ends)' if _first_line(path).rstrip(b'\n').endswith(b'\r') else ''


def _first_line(path):
    try:
        with open(path, 'rb') as file:
            return file.readline(_FIRST_LINE_BYTES)
    except OSError:
        return b''


def _start_seconds():
    """Returns the seconds of HTTP_START_SECONDS. Raises NotServing if the value is no number in the range."""
    sent = os.environ.get(_START_VARIABLE)
    if sent is None:
        return _START_SECONDS
    try:
        seconds = float(sent)
    except ValueError:
        seconds = 0.0
    if 0 < seconds <= _MOST_START_SECONDS:
        return seconds
    raise NotServing(
        '%s must be a number of seconds above 0 and at most %d, got "%s"' % (_START_VARIABLE, _MOST_START_SECONDS, sent[:40])
    )


def _exit_text(code):
    return 'signal %d' % -code if code < 0 else 'exit code %d' % code
