"""Connects to a port of this network's loopback and passes the bytes on unchanged."""

import errno
import select
import socket

from . import frames
from .failure import Refusal

_CONNECT_SECONDS = 5
_CHUNK = 262144
#: Time that a port has to accept the rest of what a caller has sent before it disconnected.
_LEFT_MS = 60000
_HOSTS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def serve(connection, request):
    """Connects, reports that, and passes bytes on until both sides have ended. Raises Refusal."""
    target = _connect(request["port"])
    frames.write_message(connection, {"ok": True})
    _pass_on(connection, target)


def _connect(port):
    refused = None
    for family, host in _HOSTS:
        try:
            target = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            # This machine lacks the protocol.
            continue
        try:
            target.settimeout(_CONNECT_SECONDS)
            target.connect((host, port))
            target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return target
        except OSError as error:
            target.close()
            if refused is None or error.errno != errno.ECONNREFUSED:
                refused = refused if isinstance(refused, socket.timeout) else error
    if isinstance(refused, socket.timeout):
        raise Refusal("unavailable", "port %d does not answer" % port)
    raise Refusal("unavailable", "nothing listens on port %d" % port)


class _Direction:
    """The bytes that were read from one side and not yet written to the other."""

    def __init__(self, source, target):
        self.source = source
        self.target = target
        self.left = memoryview(b"")
        self.has_ended = False

    def read(self):
        try:
            data = self.source.recv(_CHUNK)
        except BlockingIOError:
            return
        if data:
            self.left = memoryview(data)
            self.write()
        else:
            self.has_ended = True
            _end_sending(self.target)

    def write(self):
        try:
            self.left = self.left[self.target.send(self.left) :]
        except BlockingIOError:
            pass

    def pass_rest(self):
        """Passes on what the source has sent before it disconnected, as far as the target accepts it now."""
        try:
            if self.left:
                self.write()
            while not self.left and not self.has_ended:
                self.read()
        except OSError:
            # A target that breaks off accepts nothing more.
            pass


def _pass_on(caller, port):
    for side in (caller, port):
        side.setblocking(False)
    directions = asking, answering = _Direction(caller, port), _Direction(port, caller)
    poll = select.poll()
    wanted = {}
    hung_up = set()
    while not all(direction.has_ended for direction in directions):
        events = {caller.fileno(): 0, port.fileno(): 0}
        for direction in directions:
            if direction.left:
                events[direction.target.fileno()] |= select.POLLOUT
            elif not direction.has_ended:
                events[direction.source.fileno()] |= select.POLLIN
        for descriptor, event in events.items():
            if event == 0 and descriptor in hung_up:
                # poll would report the hang-up again and again, whatever events are requested.
                event = None
            if wanted.get(descriptor) != event:
                if event is None:
                    poll.unregister(descriptor)
                else:
                    poll.register(descriptor, event)
                wanted[descriptor] = event
        ready = dict(poll.poll(_LEFT_MS if caller.fileno() in hung_up else None))
        if not ready:
            _reset(directions)
            return
        hung_up.update(descriptor for descriptor, event in ready.items() if event & select.POLLHUP)
        if caller.fileno() in hung_up and not answering.has_ended:
            # The caller has disconnected, not only ended its own side. The rest of the answer has no reader,
            # and the port may never read again.
            asking.pass_rest()
            _reset(directions)
            return
        for direction in directions:
            source, target = ready.get(direction.source.fileno(), 0), ready.get(direction.target.fileno(), 0)
            if (target | source) & (select.POLLERR | select.POLLNVAL):
                _reset(directions)
                return
            if direction.left:
                if target & (select.POLLOUT | select.POLLHUP):
                    direction.write()
            elif not direction.has_ended and source:
                direction.read()


def _end_sending(side):
    try:
        side.shutdown(socket.SHUT_WR)
    except OSError:
        # The side has closed already.
        pass


def _reset(directions):
    """Passes the break of a side on to the other as an error, as far as the kind of socket allows."""
    for direction in directions:
        if direction.source.family != socket.AF_UNIX:
            # With a linger time of 0, `close` sends a reset.
            direction.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        direction.source.close()
