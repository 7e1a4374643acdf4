package dev.rookery.runtime;

import dev.rookery.AlarmTime;
import dev.rookery.runtime.Protocol.InitDurable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/**
 * The state of a durable agent. A changed state is sent in a SAVE frame directly before the RESULT of its
 * call. A call that fails sends none, and the state is set back.
 *
 * <p>The instance's lock may be held when this object's lock is acquired, but not the other way round.
 */
final class Durable {
    /**
     * Up to this size a value is compared after each call, since code may have kept it. Above, only after a
     * call that has used it.
     */
    private static final int COMPARED_BYTES = 64 * 1024;
    private static final int DEFAULT_LIMIT_BYTES = 1024 * 1024;
    /** Size of the flags and of the length of the alarms, which begin a SAVE. */
    private static final int SAVE_HEAD_BYTES = 5;
    private static final int MAX_NAME_CHARS = 128;
    private static final int MAX_PAYLOAD_BYTES = 16 * 1024;
    private static final byte[] EMPTY = {'{', '}'};
    private static final String WHAT = "context.state";
    private static final String NOT_IN_CALL =
            "the initializer runs at each start: save, and set, cancel and list alarms, in a call";

    /** A changed state that was not sent yet. */
    private static final class Change {
        final byte[] json;
        /** False: only alarms have changed, or the initializer's change is not saved yet. */
        final boolean isOfValue;

        Change(byte[] json, boolean isOfValue) {
            this.json = json;
            this.isOfValue = isOfValue;
        }
    }

    /** A wait for a SAVED or an ALARM_LIST. Gets its payload, or null if the connection has ended. */
    private static final class Answer extends CompletableFuture<byte[]> {
        final Connection connection;
        final int kind;

        Answer(Connection connection, int kind) {
            this.connection = connection;
            this.kind = kind;
        }
    }

    final Protocol.Wake wake;
    final Awake awake;
    private final int limitBytes;
    private final boolean listsAlarms;

    // The following fields are guarded by this.

    /** The JSON to which a failed call sets the state back. */
    private byte[] base;
    /** What code has got or put; null: nothing yet. */
    private Object value;
    /** The JSON of the value when it was the same as base, which another program may have written. */
    private byte[] clean;
    /** True if the running call has used the value. */
    private boolean isTouched;
    /** True while base is not the saved state, because the initializer has changed it. */
    private boolean isUnsaved;
    private boolean isWaking;
    private long version;
    /** Alarms that were set or cancelled since the last save, as JSON by name. */
    private final Map<String, String> alarms = new LinkedHashMap<>();
    private final List<Answer> waiting = new ArrayList<>();

    Durable(InitDurable message, Instance instance) {
        awake = new Awake(instance);
        wake = message.wake == null ? new Protocol.Wake() : message.wake;
        limitBytes = message.maxStateBytes > 0 ? message.maxStateBytes : DEFAULT_LIMIT_BYTES;
        listsAlarms = message.listsAlarms;
        isWaking = !wake.reason.equals("created");
        version = message.version;
        base = message.state == null ? EMPTY : message.state.getBytes(StandardCharsets.UTF_8);
    }

    /** Fails if the saved state cannot be used. */
    void check() throws Failure {
        try {
            if (Json.event(base, Map.class) != null) {
                return;
            }
        } catch (RuntimeException | StackOverflowError error) {
            throw unreadable(error.getMessage());
        }
        throw unreadable("it is not an object");
    }

    private static Failure unreadable(String why) {
        return new Failure(Protocol.CODE_LOAD, "the saved state cannot be read: " + why);
    }

    synchronized boolean isWaking() {
        return isWaking;
    }

    /** Returns the state as an object of the class. */
    synchronized <T> T get(Class<T> type, Call call) {
        assertOpen(call);
        if (!type.isInstance(value)) {
            if (isTouched && value != null) {
                throw new IllegalStateException("the state is in use as a " + value.getClass().getName()
                        + " and cannot be a " + type.getName() + " too");
            }
            T read = read(base, type);
            try {
                clean = encode(read);
            } catch (Failure failure) {
                throw new StateException(failure);
            }
            value = read;
        }
        isTouched = true;
        return type.cast(value);
    }

    static <T> T read(byte[] json, Class<T> type) {
        try {
            return type.cast(Json.event(json, type));
        } catch (RuntimeException | StackOverflowError error) {
            throw new IllegalStateException(
                    "the saved state does not fit " + type.getName() + ": " + error.getMessage(), error);
        }
    }

    static <T> T empty(Class<T> type) {
        return read(EMPTY, type);
    }

    /** Replaces the state. */
    synchronized void put(Object replacement, Call call) {
        assertOpen(call);
        if (value == null) {
            clean = base;
        }
        value = replacement;
        isTouched = true;
    }

    private static void assertOpen(Call call) {
        if (call != null && call.isOver()) {
            throw new IllegalStateException("the call has ended: use the state only until the handler returns");
        }
    }

    /** Ends the initialization: a failed call sets the state back to what it is now. */
    synchronized void begin() throws Failure {
        Change change = change();
        if (change != null) {
            agree(change);
            isUnsaved = true;
        }
        isTouched = false;
    }

    /**
     * Ends a call. Returns the SAVE of what a successful call has changed, or null. Undoes the changes of a
     * call that failed, and fails if the changes cannot be saved.
     */
    synchronized byte[] settle(Call call, boolean hasFailed) throws Failure {
        isWaking = false;
        call.endState();
        boolean isSettled = false;
        try {
            Change change = hasFailed ? null : change();
            byte[] frame = change == null ? null : commit(call.id, change);
            isSettled = !hasFailed;
            return frame;
        } finally {
            if (!isSettled) {
                rollBack();
            }
            isTouched = false;
        }
    }

    /** Returns what has to be saved, or null. The caller holds the lock. */
    private Change change() throws Failure {
        byte[] now = changedJson();
        if (now == null && !isUnsaved && alarms.isEmpty()) {
            return null;
        }
        Change change = new Change(now == null ? base : now, now != null);
        if (change.json.length > limitBytes) {
            throw new Failure(Protocol.CODE_TOO_LARGE, WHAT + " has " + change.json.length
                    + " bytes, more than the limit of " + limitBytes);
        }
        return change;
    }

    /** Returns the JSON of the value if code has changed it, otherwise null. The caller holds the lock. */
    private byte[] changedJson() throws Failure {
        if (value == null || !isTouched && clean.length > COMPARED_BYTES) {
            return null;
        }
        byte[] now = encode(value);
        return Arrays.equals(now, clean) ? null : now;
    }

    private static byte[] encode(Object value) throws Failure {
        byte[] json;
        try {
            json = Json.bytes(value, WHAT);
        } catch (RuntimeException error) { // such as a change by another thread
            throw Failure.notJson(WHAT, Log.textOf(error));
        }
        if (json[0] != '{') {
            throw Failure.notJson(WHAT, "a " + value.getClass().getName() + " is not a JSON object");
        }
        return json;
    }

    /** Sets the state back to its last saved form. The caller holds the lock. */
    private void rollBack() {
        boolean isChanged = true;
        try {
            isChanged = changedJson() != null;
        } catch (Failure notJson) {
            // It is dropped like another change.
        } finally {
            if (isChanged) {
                value = null;
            }
            alarms.clear();
        }
    }

    /** Makes the change the state to which a failed call is set back. The caller holds the lock. */
    private void agree(Change change) {
        base = change.json;
        if (change.isOfValue) {
            clean = change.json;
        }
        isUnsaved = false;
    }

    /**
     * Agrees on a change and returns its SAVE. Call id 0: it belongs to no answer. The caller holds the lock.
     */
    private byte[] commit(int callId, Change change) {
        byte[] changes = alarms.isEmpty() ? new byte[0] : alarmChanges();
        byte[] payload = new byte[SAVE_HEAD_BYTES + changes.length + change.json.length];
        Protocol.putInt(payload, 1, changes.length);
        System.arraycopy(changes, 0, payload, SAVE_HEAD_BYTES, changes.length);
        System.arraycopy(change.json, 0, payload, SAVE_HEAD_BYTES + changes.length, change.json.length);
        agree(change);
        alarms.clear();
        version++;
        return Protocol.frame(Protocol.SAVE, callId, payload);
    }

    // Requests of a call.

    void save(Call call) throws InterruptedException {
        assertRuns(call);
        Answer answer;
        call.suspend();
        try {
            synchronized (this) {
                Change change = change();
                if (change == null) {
                    return;
                }
                answer = send(call.connection, commit(0, change), Protocol.SAVED);
            }
        } catch (Failure failure) {
            throw new StateException(failure);
        } finally {
            call.enter();
        }
        await(answer);
    }

    List<Map<String, Object>> listAlarms(Call call) throws InterruptedException {
        assertRuns(call);
        if (!listsAlarms) {
            throw new IllegalStateException("the service is of a release that cannot list alarms");
        }
        Answer answer;
        call.suspend();
        try {
            synchronized (this) {
                byte[] request = Protocol.frame(Protocol.ALARMS, 0, alarmChanges());
                answer = send(call.connection, request, Protocol.ALARM_LIST);
            }
        } finally {
            call.enter();
        }
        Protocol.AlarmList list = (Protocol.AlarmList) Json.event(await(answer), Protocol.AlarmList.class);
        if (list.error != null) {
            throw new IllegalArgumentException(list.error);
        }
        return list.alarms;
    }

    private static void assertRuns(Call call) {
        if (call == null) {
            throw new IllegalStateException(NOT_IN_CALL);
        }
        assertOpen(call);
        if (!call.isEnteredHere()) {
            throw new IllegalStateException("only the thread of the call can save and list alarms");
        }
        if (call.mustStop()) {
            throw call.cancelled();
        }
    }

    /** Sends a request and returns the wait for its answer. The caller holds the lock. */
    private Answer send(Connection connection, byte[] request, int kind) {
        Answer answer = new Answer(connection, kind);
        waiting.add(answer);
        if (!connection.send(request)) {
            answer.complete(null);
        }
        return answer;
    }

    private static byte[] await(Answer answer) throws InterruptedException {
        byte[] payload;
        try {
            payload = answer.get();
        } catch (ExecutionException never) {
            throw new IllegalStateException(never);
        }
        if (payload == null) {
            throw new IllegalStateException("the connection to the service ended before its answer");
        }
        return payload;
    }

    /** Handles a SAVED or an ALARM_LIST of a client. */
    synchronized void receive(String client, int kind, byte[] payload) {
        for (Iterator<Answer> answers = waiting.iterator(); answers.hasNext();) {
            Answer answer = answers.next();
            if (answer.kind == kind && client.equals(answer.connection.client)) {
                answers.remove();
                answer.complete(payload);
                return;
            }
        }
    }

    /** Ends the waits for answers on a data connection that has ended. */
    synchronized void disconnected(Connection connection) {
        waiting.removeIf(answer -> answer.connection == connection && (answer.complete(null) || answer.isDone()));
    }

    // Alarms.

    void setAlarm(String name, AlarmTime when, Object payload, Call call) {
        Map<String, Object> alarm = new LinkedHashMap<>();
        alarm.put("name", name);
        alarm.putAll(when.fields());
        alarm.put("payload", payload);
        byte[] json;
        try {
            int bytes = Json.bytes(payload, "the payload of an alarm").length;
            if (bytes > MAX_PAYLOAD_BYTES) {
                throw new IllegalArgumentException("the payload of an alarm has " + bytes
                        + " bytes, more than the limit of " + MAX_PAYLOAD_BYTES);
            }
            json = Json.bytes(alarm, "the alarm");
        } catch (Failure failure) {
            throw new IllegalArgumentException(failure.getMessage());
        }
        changeAlarm(name, new String(json, StandardCharsets.UTF_8), call);
    }

    void cancelAlarm(String name, Call call) {
        changeAlarm(name, "{\"name\":" + Json.MESSAGES.toJson(name) + "}", call);
    }

    private synchronized void changeAlarm(String name, String json, Call call) {
        if (call == null) {
            throw new IllegalStateException(NOT_IN_CALL);
        }
        assertOpen(call);
        if (name == null || name.isEmpty() || name.codePointCount(0, name.length()) > MAX_NAME_CHARS
                || name.chars().anyMatch(Character::isISOControl)) {
            throw new IllegalArgumentException("the name of an alarm must be a text of 1 to " + MAX_NAME_CHARS
                    + " characters, none a control character");
        }
        alarms.put(name, json);
    }

    /** Returns the JSON of the changes that are not saved yet. The caller holds the lock. */
    private byte[] alarmChanges() {
        return ("[" + String.join(",", alarms.values()) + "]").getBytes(StandardCharsets.UTF_8);
    }

    /** Adds the number of saves and the time of keepAwake to a greeting. */
    synchronized void describe(Protocol.HelloOk answer) {
        answer.stateVersion = version;
        answer.keepAwakeSeconds = awake.seconds();
    }
}
