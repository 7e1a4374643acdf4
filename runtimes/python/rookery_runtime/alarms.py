"""Alarms of a durable agent, as `context.set_alarm` takes them and as a SAVE carries them."""
import time

from .values import NotJson, decode, encode

_MAX_NAME_CHARS = 128
_MAX_PAYLOAD_BYTES = 16 * 1024
_LEAST_EVERY_SECONDS = 5


def check_name(name):
    """Raises ValueError if no alarm can have this name."""
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME_CHARS or not name.isprintable():
        raise ValueError('the name of an alarm must be a text of 1 to %d printable characters' % _MAX_NAME_CHARS)


def alarm_of(name, times, payload, max_late_seconds):
    """
    Returns the alarm as a SAVE carries it. `times` has the values of `at`, `after`, `every`, `cron` and `tz`.

    Raises ValueError. The service checks the rest: `cron`, `tz`, and the number of alarms.
    """
    check_name(name)
    given = [key for key in ('at', 'after', 'every', 'cron') if times[key] is not None]
    if len(given) != 1:
        raise ValueError('an alarm needs exactly one of at, after, every and cron')
    alarm = {'name': name}
    if times['at'] is not None:
        alarm['at'] = _time_of(times['at'])
    elif times['after'] is not None:
        # From now on, not from the save at the end of the call.
        alarm['at'] = int((time.time() + _seconds('after', times['after'], 0)) * 1000)
    elif times['every'] is not None:
        alarm['every'] = _seconds('every', times['every'], _LEAST_EVERY_SECONDS)
    else:
        alarm['cron'] = times['cron']
    if times['tz'] is not None:
        alarm['tz'] = times['tz']
    if max_late_seconds is not None:
        alarm['max_late_seconds'] = _seconds('max_late_seconds', max_late_seconds, 0)
    try:
        size = len(encode(payload))
    except NotJson as error:
        raise ValueError('the payload of an alarm cannot be turned into JSON: %s' % error)
    if size > _MAX_PAYLOAD_BYTES:
        raise ValueError('the payload of an alarm has %d bytes, more than the limit of %d' % (size, _MAX_PAYLOAD_BYTES))
    alarm['payload'] = payload
    # A copy: code may change the payload before the save.
    return decode(encode(alarm))


def _seconds(name, value, least):
    if hasattr(value, 'total_seconds'):  # a timedelta; its module is not loaded for this
        value = value.total_seconds()
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value < 1e10:
        raise ValueError('%s must be a number of seconds, at least %d' % (name, least))
    return value


def _time_of(value):
    if hasattr(value, 'timestamp'):  # a datetime
        return int(value.timestamp() * 1000)
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value * 1000)
    raise ValueError('at must be a datetime, seconds since the epoch as time.time(), or a text of RFC 3339')
