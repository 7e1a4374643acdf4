"""
The state of a durable agent: what `context.state` is, how a change is found, and how it is saved.

A changed state is sent in a SAVE frame directly before the RESULT of its call. A call that fails sends none,
and the state in memory is set back.
"""
import math
import threading
from time import monotonic

from . import protocol
from .alarms import alarm_of, check_name
from .failures import CallFailure
from .interrupt import protected
from .values import NotJson, decode, encode

#: Up to this size every part that was ever handed out is compared after a call. Above, only the keys that the
#: call has touched.
_COMPARED_BYTES = 64 * 1024
#: Values that cannot change without an assignment to their key.
_FIXED = frozenset((str, int, float, bool, type(None)))


class State(dict):
    """
    A dict that notices which of its keys were touched.

    `touched`: keys that were assigned, deleted, or whose container was handed out since the last look.
    `given`: keys whose container was ever handed out, so that other code may still change it.
    """

    def __init__(self, values):
        dict.__init__(self, values)
        self.touched = set()
        self.given = set()

    def _hand_out(self, key, value):
        if type(value) not in _FIXED:
            self.touched.add(key)
            self.given.add(key)
        return value

    def _assign(self, key, value):
        self.touched.add(key)
        self._hand_out(key, value)

    def _hand_out_all(self):
        for key, value in dict.items(self):
            self._hand_out(key, value)

    def __getitem__(self, key):
        return self._hand_out(key, dict.__getitem__(self, key))

    def get(self, key, default=None):
        return self[key] if key in self else default

    def __setitem__(self, key, value):
        self._assign(key, value)
        dict.__setitem__(self, key, value)

    def setdefault(self, key, default=None):
        if key not in self:
            self[key] = default
        return self[key]

    def __delitem__(self, key):
        self.touched.add(key)
        dict.__delitem__(self, key)

    def pop(self, key, *default):
        self.touched.add(key)
        return dict.pop(self, key, *default)

    def popitem(self):
        key, value = dict.popitem(self)
        self.touched.add(key)
        return key, value

    def clear(self):
        self.touched.update(dict.keys(self))
        dict.clear(self)

    def update(self, *others, **named):
        for key, value in dict(*others, **named).items():
            self[key] = value

    def __ior__(self, other):
        self.update(other)
        return self

    def __or__(self, other):
        return dict(self.copy(), **other)

    def copy(self):
        return dict(self.items())

    def items(self):
        self._hand_out_all()
        return dict.items(self)

    def values(self):
        self._hand_out_all()
        return dict.values(self)

    def __iter__(self):  # with its own iterator, dict(state) and {**state} use the methods above
        return dict.__iter__(self)

    def __reduce__(self):
        return dict, (self.copy(),)


class Change(object):
    """A changed state that was encoded and not sent yet."""

    def __init__(self, parts, whole, data, generation, alarms=None):
        #: The changed alarms by name; None for a cancelled one.
        self.alarms = alarms or {}
        #: The JSON of the changed keys; None for a deleted one.
        self.parts = parts
        #: The JSON of all keys.
        self.whole = whole
        self.data = data
        self.generation = generation

    def frame(self, call_id):
        """Returns the SAVE frame of this change."""
        return protocol.save_frame(call_id, self.data, _encode_changes(self.alarms) if self.alarms else b'')


#: A call that has succeeded and changed nothing.
UNCHANGED = Change({}, {}, b'', 0)


class Durable(object):
    """The state of this agent, with its last saved or agreed form, to which a failed call sets it back."""

    def __init__(self, message, connection):
        """
        `message` is the member `durable` of INIT. `connection` returns a data connection for saves outside of
        calls, or None. Raises CallFailure if the stored document cannot be read.
        """
        self.version = message.get('version') or 0
        self.wake = dict(message.get('wake') or {})
        self.is_waking = self.wake.get('reason', 'created') != 'created'
        self.is_ready = False
        self._limit = message.get('maxStateBytes') or 1024 * 1024
        self._connection = connection
        self._lock = threading.RLock()
        self._waiting = []
        #: The waits for ALARM_LIST; None: the client does not answer ALARMS.
        self._listing = [] if message.get('listsAlarms') else None
        #: Keys that were touched before a change that was prepared and not committed yet.
        self._taken = set()
        self._generation = 0
        #: Alarms that were set or cancelled since the last save; None for a cancelled one.
        self._alarms = {}
        #: The ends of the times for which code keeps the agent awake, by `time.monotonic`.
        self._awake = []
        #: True while the document in `_base` is not the saved one: the initializer has changed it.
        self._is_unsaved = False
        text = message.get('state')
        try:
            values = {} if text is None else decode(text.encode('utf-8'))
            if not isinstance(values, dict):
                raise ValueError('it is not an object')
            self._base = dict((key, encode(value)) for key, value in values.items())
        except (ValueError, AttributeError, NotJson) as error:
            raise CallFailure(protocol.CODE_LOAD, 'the saved state cannot be read: %s' % error)
        self._size = len(text or '')
        self.state = State(values)

    def begin(self):
        """Ends the initialization: a failed call sets the state back to what it is now. Raises CallFailure."""
        change = self.prepare()
        if change is not UNCHANGED:
            self._base = change.whole
            self._size = len(change.data)
            self._taken = set()
            self._generation += 1
            self._is_unsaved = True
        self.is_ready = True

    def prepare(self):
        """Returns the change since the last save, or UNCHANGED. Raises CallFailure."""
        state = self.state
        with self._lock:
            names, state.touched = state.touched, set()
            self._taken |= names
            if self._size <= _COMPARED_BYTES:
                names = names | state.given
            parts = {}
            for key in names:
                if key in state:
                    data = _encode_part(key, dict.__getitem__(state, key))
                    if data != self._base.get(key):
                        parts[key] = data
                elif key in self._base:
                    parts[key] = None
            if not parts and not self._is_unsaved and not self._alarms:
                self._taken = set()
                return UNCHANGED
            return self._change_of(parts)

    def _change_of(self, parts):
        merged = dict(self._base, **{key: data for key, data in parts.items()})
        whole = dict((key, merged[key]) for key in list(dict.keys(self.state)) if merged.get(key) is not None)
        data = b'{' + b','.join([encode(key) + b':' + part for key, part in whole.items()]) + b'}'
        if len(data) > self._limit:
            raise CallFailure(
                protocol.CODE_TOO_LARGE, 'context.state has %d bytes, more than the limit of %d' % (
                    len(data), self._limit))
        return Change(parts, whole, data, self._generation, dict(self._alarms))

    def settle(self, call):
        """Returns the SAVE frame of a call that has ended; empty if it changed nothing. A failure is undone."""
        change = call.saving
        self.is_waking = False
        if change is UNCHANGED:
            return b''
        if change is None:
            self.roll_back()
            return b''
        with self._lock:
            if change.generation != self._generation:
                # A thread has saved meanwhile. The next look compares these keys again.
                self.state.touched |= set(change.parts)
                change = self._change_of(change.parts)
            self._commit(change)
            return change.frame(call.id)

    def _commit(self, change):
        self._base = change.whole
        self._size = len(change.data)
        self._is_unsaved = False
        self._taken = set()
        for name, alarm in change.alarms.items():
            if self._alarms.get(name, change) is alarm:
                del self._alarms[name]
        self._generation += 1
        self.version += 1

    def roll_back(self):
        """Sets the state back to its last saved form, in place."""
        with self._lock:
            state = self.state
            names = state.touched | state.given | self._taken
            kept = {}
            for key, data in self._base.items():
                if key in state and (key not in names or _is_same(dict.__getitem__(state, key), data)):
                    kept[key] = dict.__getitem__(state, key)
                else:
                    kept[key] = decode(data)
            dict.clear(state)
            dict.update(state, kept)
            state.touched = set()
            state.given &= set(kept)
            self._taken = set()
            self._alarms = {}

    def set_alarm(self, name, times, payload, max_late_seconds):
        """Sets an alarm with the next save. Raises ValueError."""
        self._change_alarm(name, alarm_of(name, times, payload, max_late_seconds))

    def cancel_alarm(self, name):
        """Cancels an alarm with the next save. Raises ValueError."""
        check_name(name)
        self._change_alarm(name, None)

    def list_alarms(self, call):
        """
        Returns the alarms with the changes that are not saved yet, by name. Raises RuntimeError, and ValueError
        if a change is wrong.
        """
        if not self.is_ready:
            raise RuntimeError('the initializer runs at each start: list alarms in a call')
        if self._listing is None:
            raise RuntimeError('the service is of a release that cannot list alarms')
        waiting = self._ask_alarms(call.connection if call is not None else self._connection())
        waiting.wait()
        if waiting.answer is None:
            raise RuntimeError('the connection to the service ended before it had listed the alarms')
        if 'error' in waiting.answer:
            raise ValueError(waiting.answer['error'])
        return waiting.answer['alarms']

    @protected
    def _ask_alarms(self, connection):
        if connection is None:
            raise RuntimeError('there is no connection to the service that could list the alarms')
        waiting = _Waiting()
        with self._lock:
            self._listing.append(waiting)
            connection.send(protocol.frame(protocol.ALARMS, 0, _encode_changes(self._alarms)))
        return waiting

    def listed(self, answer):
        """Handles an ALARM_LIST. Called in the control thread."""
        if self._listing:
            self._listing.pop(0).end(answer)

    def _change_alarm(self, name, alarm):
        if not self.is_ready:
            raise RuntimeError('the initializer runs at each start: set and cancel alarms in a call')
        with self._lock:
            self._alarms[name] = alarm

    def save(self, call):
        """
        Saves the state now and returns when it is on disk.

        Raises CallFailure if it is not JSON or too large, and RuntimeError if the connection ended before.
        """
        if not self.is_ready:
            raise RuntimeError('a change of context.state in the initializer is saved with the first call')
        change = self.prepare()
        if change is UNCHANGED:
            return
        waiting = self._send(change, call.connection if call is not None else self._connection())
        waiting.wait()
        if not waiting.answer:
            raise RuntimeError('the connection to the service ended before the state was saved')

    @protected
    def _send(self, change, connection):
        if connection is None:
            raise RuntimeError('there is no connection to the service that could save the state')
        waiting = _Waiting()
        with self._lock:
            if change.generation != self._generation:
                change = self._change_of(change.parts)
            self._commit(change)
            self._waiting.append(waiting)
            connection.send(change.frame(0))
        return waiting

    def kept_awake_seconds(self):
        """Returns for how long code keeps the agent awake from now on; 0: it does not."""
        with self._lock:
            return max([0] + [math.ceil(end - monotonic()) for end in self._awake])

    def keep_awake(self, end):
        """Keeps the agent awake until `end` (`time.monotonic`), or until `let_sleep`."""
        with self._lock:
            self._awake.append(end)
        self._tell_awake()

    def let_sleep(self, end):
        """Ends what `keep_awake` with the same time began."""
        with self._lock:
            self._awake.remove(end)
        self._tell_awake()

    @protected
    def _tell_awake(self):
        # Without a connection the next greeting says it.
        connection = self._connection()
        if connection is not None:
            connection.send(protocol.keep_awake_frame(self.kept_awake_seconds()))

    def last_save(self):
        """Returns the SAVE frame of what changed since the last call; empty if nothing did. Never raises."""
        try:
            change = self.prepare()
            if change is UNCHANGED:
                return b''
            self._commit(change)
            return change.frame(0)
        except Exception:  # not JSON or too large: the document stays as it was saved last
            return b''

    def saved(self):
        """Handles a SAVED. Called in the control thread."""
        if self._waiting:
            self._waiting.pop(0).end(True)

    def disconnected(self):
        """Ends the waits for answers, after a data connection has ended."""
        for waits in (self._waiting, self._listing):
            while waits:
                waits.pop(0).end(None)


class _Waiting(object):
    """The wait for a SAVED or an ALARM_LIST."""

    def __init__(self):
        #: Member of ALARM_LIST, or True; None: there is none.
        self.answer = None
        self._over = threading.Event()
        self.wait = self._over.wait

    def end(self, answer):
        self.answer = answer
        self._over.set()


def _encode_part(key, value):
    try:
        if not isinstance(key, str):
            raise NotJson('the key %r is not a text' % (key,))
        return encode(value)
    except NotJson as error:
        text = str(error)
    if isinstance(key, str):
        try:
            encode({key: value})
        except NotJson as error:  # with the whole path
            text = str(error)
    raise CallFailure(protocol.CODE_NOT_JSON, 'context.state cannot be turned into JSON: %s' % text)


def _encode_changes(alarms):
    return encode([value or {'name': name} for name, value in alarms.items()])


def _is_same(value, data):
    try:
        return encode(value) == data
    except Exception:
        return False
