"""Wire format of the runtime protocol, version 1. Specified in docs/reference/runtime-protocol.md."""
import json
import struct

from . import values

VERSION = 1

(HELLO, HELLO_OK, INIT, INIT_OK, CALL, RESULT, CHUNK, ERROR,
 CANCEL, CREDIT, PING, PONG, STOP, STOPPED, SAVE, SAVED, SPANS, KEEP_AWAKE, ALARMS, ALARM_LIST) = range(1, 21)

#: Size of the length prefix, the type and the call id.
HEADER_BYTES = 9
#: Limit of a frame: a body or a result of 6 MiB, and space for its header.
MAX_FRAME_BYTES = 7 * 1024 * 1024
#: Limit for the text of an ERROR, since an exception's own text may have any length.
MAX_MESSAGE_CHARS = 64 * 1024

CODE_PROTOCOL = 4000
CODE_LOAD = 4001
CODE_HANDLER = 4002
CODE_TOO_LARGE = 4004
CODE_NOT_JSON = 4007
CODE_PRE_STOP = 4009
CODE_TIMEOUT = 4010
CODE_INITIALIZER = 4201
CODE_INITIALIZER_TIMEOUT = 4211

_HEADER = struct.Struct('>IBI')
_RESULT = struct.Struct('>IBII')
_CREDIT = struct.Struct('>I')
_SAVE = struct.Struct('>IBIBI')

#: Returns (length, type, call id) of the frame that begins at an offset.
read_header = _HEADER.unpack_from


class ProtocolError(Exception):
    """The other side violated the protocol. Its connection is closed."""


def frame(kind, call_id, payload=b''):
    return _HEADER.pack(len(payload) + 5, kind, call_id) + payload


def json_frame(kind, call_id, message):
    return frame(kind, call_id, values.encode(message))


def result_frame(call_id, run_micros, data):
    return _RESULT.pack(len(data) + 9, RESULT, call_id, run_micros) + data


def save_frame(call_id, state, alarms=b''):
    """Returns a SAVE frame. `alarms`: JSON of the changes. `call_id` 0: the save belongs to no answer."""
    return _SAVE.pack(len(alarms) + len(state) + 10, SAVE, call_id, 0, len(alarms)) + alarms + state


def keep_awake_frame(seconds):
    return frame(KEEP_AWAKE, 0, _CREDIT.pack(seconds))


def spans_frame(call_id, message):
    return json_frame(SPANS, call_id, message)


def error_frame(call_id, code, message, run_micros=None):
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[:MAX_MESSAGE_CHARS] + '...'
    error = {'code': code, 'message': message}
    if run_micros is not None:
        error['runMicros'] = run_micros
    return json_frame(ERROR, call_id, error)


def read_json(data, what):
    """Returns the JSON object of a frame's payload. Raises ProtocolError."""
    try:
        message = json.loads(bytes(data).decode('utf-8'))
    except (ValueError, RecursionError) as error:
        raise ProtocolError('%s is not JSON: %s' % (what, error))
    if not isinstance(message, dict):
        raise ProtocolError('%s must be a JSON object' % what)
    return message


def read_stop(data):
    """Returns the grace of a STOP in seconds. Raises ProtocolError."""
    grace_ms = read_json(data, 'STOP').get('graceMs')
    if not isinstance(grace_ms, (int, float)) or isinstance(grace_ms, bool) or not 0 <= grace_ms < 1e12:
        raise ProtocolError('STOP needs graceMs, a number of milliseconds')
    return grace_ms / 1000.0


def read_credit(data):
    if len(data) != 4:
        raise ProtocolError('CREDIT must have 4 bytes, not %d' % len(data))
    return _CREDIT.unpack(data)[0]
