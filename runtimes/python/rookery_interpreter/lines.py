"""The lines of an execution: JSON objects, one a line, in the wire format of the E2B code interpreter."""
import datetime
import json


def line_of(message):
    """Returns a message as one line. It is ASCII: clients decode chunks that may cut a character in two."""
    return json.dumps(message, ensure_ascii=True, separators=(',', ':')).encode('ascii') + b'\n'


def failure(name, value, trace=''):
    """Returns the message of an error."""
    return {'type': 'error', 'name': name, 'value': value, 'traceback': trace}


def now():
    """Returns the current time in the form of the wire, such as `2026-11-28T03:36:40.055Z`."""
    moment = datetime.datetime.now(datetime.timezone.utc)
    return moment.strftime('%Y-%m-%dT%H:%M:%S.') + '%03dZ' % (moment.microsecond // 1000)


KEEPALIVE = line_of({'type': 'keepalive'})
END = line_of({'type': 'end_of_execution'})
