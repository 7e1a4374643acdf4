"""Values as results: text, HTML, images and the other forms that a value offers."""
import base64
import datetime
import math
import sys

#: Keys of a result by MIME type. Other types go to `extra`.
KEYS = {
    'text/plain': 'text',
    'text/html': 'html',
    'text/markdown': 'markdown',
    'image/svg+xml': 'svg',
    'image/png': 'png',
    'image/jpeg': 'jpeg',
    'application/pdf': 'pdf',
    'text/latex': 'latex',
    'application/json': 'json',
    'application/javascript': 'javascript',
}
_METHODS = [(kind, '_repr_%s_' % key) for kind, key in KEYS.items() if key != 'text']
#: Depth of nested containers that are converted to JSON.
_MOST_NESTED = 64


def result_of(value, is_main):
    """Returns the message of a value. Raises what its `__repr__` raises."""
    message = _message(bundle_of(value), is_main)
    for key, data in (('data', _columns_of(value)), ('chart', _chart_of(value))):
        if data is not None:
            message[key] = data
    return message


def result_of_bundle(bundle, is_main):
    """Returns the message of a dict from MIME types to data."""
    return _message(dict(bundle), is_main)


def bundle_of(value):
    """Returns the forms of a value by MIME type."""
    bundle = {}
    if not isinstance(value, type):
        bundle.update(_own_bundle(value))
        for kind, method in _METHODS:
            data = _called(value, method)
            if data is not None:
                bundle[kind] = data
        if 'image/png' not in bundle and _is_from(value, 'matplotlib', 'Figure'):
            from rookery_interpreter import figures
            bundle['image/png'] = figures.png_of(value)
    if 'text/plain' not in bundle:
        bundle['text/plain'] = repr(value)
    return bundle


def _own_bundle(value):
    given = _called(value, '_repr_mimebundle_')
    return dict(given) if isinstance(given, dict) else {}


def _called(value, method):
    """Returns what a method of display returns, or None. Its failure is printed: other forms remain."""
    try:
        found = getattr(value, method, None)
        if not callable(found) or getattr(found, '__name__', method) != method:
            return None
        data = found()
    except Exception as error:
        print('%s failed: %s: %s' % (method, type(error).__name__, error), file=sys.stderr)
        return None
    if isinstance(data, tuple) and len(data) == 2:
        data = data[0]  # data and metadata
    return data


def _message(bundle, is_main):
    message = {'type': 'result', 'is_main_result': is_main, 'extra': {}}
    for kind, data in bundle.items():
        key = KEYS.get(kind)
        if key == 'json' or key is None:
            data = json_of(data)
        elif isinstance(data, (bytes, bytearray)):
            data = base64.b64encode(data).decode('ascii')
        else:
            data = str(data)
        if key is None:
            message['extra'][kind] = data
        else:
            message[key] = _unquoted(data) if key == 'text' else data
    return message


def _unquoted(text):
    """The text of a quoted string has no quotes on the wire."""
    if len(text) >= 2 and text[0] in '\'"' and text[0] == text[-1]:
        return text[1:-1]
    return text


def _is_from(value, package, name):
    kind = type(value)
    return any(base.__name__ == name and base.__module__.split('.')[0] == package for base in kind.__mro__)


def _columns_of(value):
    """Returns the columns of a DataFrame, or None."""
    if not _is_from(value, 'pandas', 'DataFrame'):
        return None
    try:
        return json_of(value.to_dict(orient='list'))
    except Exception:
        return None


def _chart_of(value):
    """Returns the data of a figure that `bundle_of` has drawn, or None."""
    if not _is_from(value, 'matplotlib', 'Figure'):
        return None
    from rookery_interpreter import figures
    return json_of(figures.chart_of(value))


def json_of(value, depth=0):
    """Returns a value as JSON that every client reads: no NaN, texts for what JSON does not have."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode('ascii')
    if depth < _MOST_NESTED:
        if isinstance(value, dict):
            return {str(key): json_of(each, depth + 1) for key, each in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [json_of(each, depth + 1) for each in value]
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    item = getattr(value, 'item', None)
    if callable(item):  # a number of numpy
        try:
            return json_of(item(), depth + 1)
        except Exception:
            return str(value)
    return str(value)
