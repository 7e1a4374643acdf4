"""One connection of a control plane: TLS, the proof, one request, and the data that follows."""

import json
import select
import socket
import ssl

from rookery_zygote import frames

from . import proof

_CHUNK = 65536
_IN, _OUT = select.POLLIN, select.POLLOUT
#: Time that an answered client has to disconnect.
_GO_SECONDS = 10


class Link:
    """
    A connection whose input is used only after its proof.

    The owner gets the request. Then it answers, joins the link with a plain socket, or leaves the link open.
    `on_end` is called once when the link has ended.
    """

    def __init__(self, loop, connection, keys, on_request):
        connection.setblocking(False)
        self._loop = loop
        self._connection = connection
        self._keys = keys
        self._on_request = on_request
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = keys.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._step = self._shake
        #: Decrypted bytes that were not used yet.
        self._received = bytearray()
        #: Encrypted bytes that were not sent yet.
        self._unsent = memoryview(b"")
        #: Bytes for the plain socket that were not sent yet.
        self._left = memoryview(b"")
        self._plain = None
        self._input_ended = self._input_passed = self._is_deaf = False
        self._output_ended = self._has_said_end = False
        self.is_open = True
        self._timer = None
        self.is_proven = False
        self.on_end = None
        self._want()

    def answer(self, message):
        """Sends the last message. The link closes when the client disconnects, or after 10 s."""
        if not self.is_open:
            return
        self._tls.write(frames.packed(json.dumps(message).encode("utf-8")))
        self._output_ended = True
        self._step = self._drop_input
        self._timer = self._loop.after(_GO_SECONDS, self.close)
        self._settle()

    def join(self, plain):
        """Passes all further bytes to and from this socket, which then belongs to the link."""
        if not self.is_open:
            plain.close()
            return
        plain.setblocking(False)
        self._plain = plain
        self._left, self._received = memoryview(bytes(self._received)), bytearray()
        self._step = self._pass_in
        self._settle()

    def close(self):
        """Closes the link without a message."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.cancel(self._timer)
        for one in (self._connection, self._plain):
            if one is not None:
                self._loop.want(one.fileno(), 0, None)
                one.close()
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    def _break_off(self):
        """Closes with a reset, so that the other side detects an abnormal end."""
        try:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        except OSError:
            pass
        self.close()

    # Events

    def _on_connection(self, event):
        try:
            if event & ~_OUT:
                self._receive()
        except (OSError, ssl.SSLError):
            self._break_off()
            return
        self._settle()

    def _on_plain(self, _event):
        self._settle()

    def _settle(self):
        """Does everything that is possible without waiting."""
        if not self.is_open:
            return
        try:
            while self.is_open and self._step():
                pass
            if self._plain is not None and self.is_open:
                self._pass_out()
            if self.is_open:
                self._say_end()
                self._flush()
        except (OSError, ssl.SSLError, frames.FrameError):
            self._break_off()
        if self.is_open:
            self._want()

    def _want(self):
        # A side that has closed has nothing more to send. Reading pauses while too much is unsent.
        is_held_up = self._left or len(self._received) >= _CHUNK and self._step == self._watch
        incoming = 0 if self._input_ended or is_held_up else _IN
        self._loop.want(self._connection.fileno(), incoming | (_OUT if self._unsent else 0), self._on_connection)
        if self._plain is not None:
            outgoing = 0 if self._output_ended or self._unsent else _IN
            self._loop.want(self._plain.fileno(), outgoing | (_OUT if self._left else 0), self._on_plain)
        if self._has_said_end and not self._unsent and (self._input_ended or self._is_deaf):
            self.close()

    def _receive(self):
        try:
            data = self._connection.recv(_CHUNK)
        except BlockingIOError:
            return
        if not data:
            # The connection ended without the end of TLS, so it was broken off.
            raise OSError("the connection was closed")
        self._incoming.write(data)

    def _flush(self):
        while True:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
                if not self._unsent:
                    return
            try:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
            except BlockingIOError:
                return

    def _read(self):
        """Returns decrypted data of the client; None when there is none now, empty at its end."""
        try:
            return self._tls.read(_CHUNK)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLZeroReturnError:
            return b""

    def _say_end(self):
        """
        Sends the end of TLS, once all received bytes are decrypted.

        Otherwise OpenSSL reports them as an error.
        """
        if not self._output_ended or self._has_said_end or self._incoming.pending:
            return
        self._has_said_end = True
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            # The end has been sent. The client's own end comes later, or has arrived.
            pass

    # The steps. Each returns True if the next one may follow immediately.

    def _shake(self):
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._step = self._greet
        return True

    def _take(self, count):
        while len(self._received) < count:
            data = self._read()
            if data is None:
                return None
            if not data:
                raise OSError("the client left")
            self._received += data
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

    def _greet(self):
        theirs = self._take(proof.NONCE_BYTES)
        if theirs is None:
            return False
        keys = self._keys
        self._facts = (theirs, proof.nonce(), keys.certificate_hash)
        self._tls.write(self._facts[1] + proof.prove(keys.key, proof.SERVER, *self._facts))
        self._step = self._check
        return True

    def _check(self):
        given = self._take(proof.PROOF_BYTES)
        if given is None:
            return False
        if not proof.is_proof(given, self._keys.key, proof.CLIENT, *self._facts):
            raise OSError("the client does not know the key")
        self.is_proven = True
        self._step = self._hear
        return True

    def _hear(self):
        request = frames.take(self._received)
        while request is None:
            data = self._read()
            if data is None:
                return False
            if not data:
                raise OSError("the client left")
            self._received += data
            request = frames.take(self._received)
        self._step = self._watch
        self._on_request(self, request)
        return True

    def _watch(self):
        """Waits while the owner works. The end of the client ends the link; too much data pauses reading."""
        while len(self._received) < _CHUNK:
            data = self._read()
            if data is None:
                return False
            if not data:
                raise OSError("the client left")
            self._received += data
        return False

    def _drop_input(self):
        data = self._read()
        if data is None:
            return False
        if not data:
            self._input_ended = True
            return False
        return True

    def _pass_in(self):
        """Passes data from the client to the plain socket."""
        if self._left:
            if not self._is_deaf:
                try:
                    self._left = self._left[self._plain.send(self._left) :]
                except BlockingIOError:
                    return False
                except OSError:
                    # The reader of the socket has closed it. Data from the socket is still passed out.
                    self._is_deaf = True
            if self._is_deaf:
                self._left = memoryview(b"")
            return not self._left
        if self._input_ended:
            if not self._input_passed:
                self._input_passed = True
                _end_sending(self._plain)
            return False
        data = self._read()
        if data is None:
            return False
        if data:
            self._left = memoryview(data)
        else:
            self._input_ended = True
        return True

    def _pass_out(self):
        """Passes data from the plain socket to the client, unless earlier data is still unsent."""
        if self._unsent or self._output_ended:
            return
        try:
            data = self._plain.recv(_CHUNK)
        except BlockingIOError:
            return
        if data:
            self._tls.write(data)
        else:
            self._output_ended = True


def _end_sending(side):
    try:
        side.shutdown(socket.SHUT_WR)
    except OSError:
        # The side has closed already.
        pass
