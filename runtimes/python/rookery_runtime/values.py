"""
JSON in and out: the standard library's C accelerators without the Python around them, which costs more than a small value.
"""
import json
import json.encoder


class NotJson(Exception):
    """A value of the user's code that JSON cannot express (4007)."""


def _refuse(value):
    raise NotJson('objects of type %s are not JSON' % type(value).__name__)


def _make_encoder(ensure_ascii):
    basestring = json.encoder.encode_basestring_ascii if ensure_ascii else json.encoder.encode_basestring
    try:
        # No markers: a value that contains itself ends as RecursionError, and one encoder serves all threads.
        chunks = json.encoder.c_make_encoder(None, _refuse, basestring, None, ':', ',', False, False, False)
        if ''.join(chunks([1, 'a'], 0)) != '[1,"a"]':
            raise TypeError('another c_make_encoder')
    except TypeError:  # None, or other parameters: an interpreter whose json module is different
        return json.JSONEncoder(
            ensure_ascii=ensure_ascii, allow_nan=False, separators=(',', ':'), default=_refuse).encode

    def encode_text(value):
        return ''.join(chunks(value, 0))

    return encode_text


_encode_text = _make_encoder(False)
_encode_ascii = _make_encoder(True)


def encode(value):
    """The value as JSON bytes. Fails with NotJson."""
    try:
        return _encode_text(value).encode('utf-8')
    except UnicodeEncodeError:  # half of a surrogate pair: JSON can only say it escaped
        return _encode_ascii(value).encode('ascii')
    except (TypeError, ValueError) as error:
        raise NotJson(str(error))
    except RecursionError:
        raise NotJson('it is nested too deeply or contains itself')


_decoder = json.JSONDecoder()
_scan = _decoder.scan_once


def decode(data):
    """The value of JSON bytes (or bytearray)."""
    text = str(data, 'utf-8')
    try:
        value, end = _scan(text, 0)
        if end == len(text):
            return value
    except StopIteration:
        pass
    return _decoder.decode(text)  # white space around it, or its error
