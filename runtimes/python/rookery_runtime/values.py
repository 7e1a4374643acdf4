"""
Converts values to and from JSON.

Calls the C accelerators of the standard library directly. The Python code around them costs more than the
conversion of a small value.
"""
import json
import json.encoder
import re


class NotJson(Exception):
    """A value of the user's code that JSON cannot express (error code 4007)."""


def _refuse(value):
    raise NotJson('objects of type %s are not JSON' % type(value).__name__)


def _make_encoder(ensure_ascii):
    basestring = json.encoder.encode_basestring_ascii if ensure_ascii else json.encoder.encode_basestring
    try:
        # Without markers one encoder serves all threads. A value that contains itself then raises
        # RecursionError.
        chunks = json.encoder.c_make_encoder(None, _refuse, basestring, None, ':', ',', False, False, False)
        if ''.join(chunks([1, 'a'], 0)) != '[1,"a"]':
            raise TypeError('another c_make_encoder')
    except TypeError:  # None, or other parameters: an interpreter whose json module differs
        return json.JSONEncoder(
            ensure_ascii=ensure_ascii, allow_nan=False, separators=(',', ':'), default=_refuse).encode

    def encode_text(value):
        return ''.join(chunks(value, 0))

    return encode_text


_encode_text = _make_encoder(False)
_encode_ascii = _make_encoder(True)


def encode(value):
    """Returns the value as JSON bytes. Raises NotJson."""
    try:
        return _encode_text(value).encode('utf-8')
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can express only as an escape
        return _encode_ascii(value).encode('ascii')
    except (NotJson, TypeError, ValueError) as error:
        raise NotJson('%s%s' % (error, _place_of_refused(value)))
    except RecursionError:
        raise NotJson('it is nested too deeply or contains itself')


_NAME = re.compile(r'[A-Za-z_$][A-Za-z0-9_$]{0,63}\Z')
_MAX_STEPS = 100
_MAX_PATH_CHARS = 300


def _place_of_refused(value):
    """
    Returns the path of the first part that JSON cannot express, such as `, at $.rows[3].when`, or an empty
    text.
    """
    path = ''
    try:
        for _ in range(_MAX_STEPS):
            step = _first_refused(value)
            if step is None or len(path) > _MAX_PATH_CHARS:
                break
            path += step[0]
            value = step[1]
    except Exception:  # raised by code of the user's containers
        pass
    return ', at $' + path if path else ''


def _first_refused(value):
    if isinstance(value, dict):
        parts = [(_key_text(key), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [('[%d]' % index, item) for index, item in enumerate(value)]
    else:
        return None
    for part in parts:
        try:
            _encode_ascii(part[1])
        except Exception:
            return part
    return None


def _key_text(key):
    text = str(key)
    return '.' + text if _NAME.match(text) else '[%s]' % json.dumps(text[:64])


_decoder = json.JSONDecoder()
_scan = _decoder.scan_once


def decode(data):
    """Returns the value of JSON bytes or a bytearray. Raises ValueError."""
    text = str(data, 'utf-8')
    try:
        value, end = _scan(text, 0)
        if end == len(text):
            return value
    except StopIteration:
        pass
    return _decoder.decode(text)  # white space around the value, or its error
