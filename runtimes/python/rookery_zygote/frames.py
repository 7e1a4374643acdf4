"""Frames on a stream socket: the length as big-endian `u32`, then that many bytes."""

import json
import struct

#: Size limit of a frame. The largest ones are start requests with their environment.
LARGEST = 16 * 1024 * 1024


class FrameError(Exception):
    """The other side violated the framing, or disconnected inside a frame."""


def read(connection, largest=LARGEST):
    """
    Returns the next frame's bytes, or None when the other side has ended between frames.

    Raises FrameError.
    """
    head = _read_exactly(connection, 4, True)
    if head is None:
        return None
    (length,) = struct.unpack(">I", head)
    _refuse_above(length, largest)
    return _read_exactly(connection, length, False)


def read_message(connection, largest=LARGEST):
    data = read(connection, largest)
    if data is None:
        return None
    try:
        message = json.loads(data.decode("utf-8"))
    except ValueError as error:
        raise FrameError("a frame that is not JSON: %s" % error)
    if not isinstance(message, dict):
        raise FrameError("a frame that is not a JSON object")
    return message


def packed(payload):
    return struct.pack(">I", len(payload)) + payload


def take(received, largest=LARGEST):
    """Removes the first frame from this bytearray and returns its bytes; None while it is incomplete."""
    if len(received) < 4:
        return None
    (length,) = struct.unpack_from(">I", received)
    _refuse_above(length, largest)
    if len(received) < length + 4:
        return None
    frame = bytes(received[4 : length + 4])
    del received[: length + 4]
    return frame


def write(connection, *payloads):
    connection.sendall(b"".join(packed(payload) for payload in payloads))


def write_message(connection, message):
    write(connection, json.dumps(message).encode("utf-8"))


def _refuse_above(length, largest):
    if length > largest:
        raise FrameError("a frame of %d bytes, at most %d are taken" % (length, largest))


def _read_exactly(connection, count, may_end):
    parts = []
    missing = count
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            if may_end and missing == count:
                return None
            raise FrameError("the connection ended inside a frame")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
