package dev.rookery;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;

/**
 * Describes a call and the instance in which it runs.
 *
 * <p>In the initializer and in pre_stop there is no call: the values of a call are empty there.
 */
public interface Context {
    /** Returns the id of the request that this call belongs to, in every log. */
    String getTraceID();

    /**
     * Returns the W3C trace context: the caller's trace id and a span id of this call. Pass it on unchanged.
     */
    String getTraceparent();

    /** Returns the id of the call. */
    String getRequestID();

    /** Returns the session that the caller named, or {@code ""}. */
    String getSessionID();

    /**
     * Returns the headers of the call that the platform does not use itself, with names in lower case.
     * Read-only.
     */
    Map<String, String> getHeaders();

    /**
     * Returns the time at which the call ends, as {@link System#currentTimeMillis}; {@link Long#MAX_VALUE}
     * without a limit.
     */
    long getDeadlineMillis();

    /**
     * Returns the milliseconds until the call is cancelled, at least 0; {@link Long#MAX_VALUE} without a
     * limit.
     */
    long getRemainingTimeInMilliSeconds();

    /**
     * Returns the call's stream.
     *
     * @throws IllegalStateException when the caller did not request one, or no call runs
     */
    Stream getStream();

    /**
     * Starts a span, a named part of this call, inside of the innermost open span of this thread. Use it with
     * {@code try (Span span = context.span("fetch"))}.
     *
     * <p>A try with resources does not mark the span as failed: see {@link Span#fail}.
     */
    Span span(String name);

    /** Returns the UUID of the instance. */
    String getInstanceID();

    /** Returns the tenant that owns the instance. */
    String getTenantID();

    /** Returns the namespace of the instance. */
    String getNamespace();

    /** Returns the name of the instance. */
    String getName();

    /**
     * Returns the registered function's name, or {@code ""} for an agent that was created without a function.
     */
    String getFunctionName();

    /** Returns the version of the function, or {@code ""}. */
    String getVersion();

    /**
     * Returns the service in the function's name ({@code 0@service@function}), or the namespace if there is
     * none.
     */
    String getPackage();

    /** Returns the memory limit of the instance in megabytes. */
    int getMemorySize();

    /** Returns the CPU share of the instance in thousandths of a core. */
    int getCPUNumber();

    /** Returns an environment variable, or null when it is not set. */
    String getUserData(String key);

    /**
     * Returns a map that exists as long as the instance. All calls share it. It is never saved: the state of
     * a durable agent is that of {@link #state}.
     */
    ConcurrentMap<String, Object> getState();

    /**
     * Returns the agent's state as an object of a class, or as a {@link Map}; empty at first. Its JSON is one
     * object.
     *
     * <p>If the agent is durable, a change is saved before the caller gets the answer, and a call that fails
     * changes nothing. Otherwise the state exists as long as the instance. Use the object until the handler
     * returns, in the thread of the call. The next save drops members that the class lacks.
     *
     * @throws IllegalStateException when the saved state does not fit the class
     */
    <T> T state(Class<T> type);

    /** Replaces the agent's state. Its JSON must be one object. */
    void putState(Object state);

    /**
     * Saves the state and the alarms now, and returns when they are on disk. What it has saved stays if the
     * call fails later.
     *
     * @throws IllegalStateException when the state cannot be saved, or the agent is not durable
     */
    void save() throws InterruptedException;

    /**
     * Calls the agent later, also if it sleeps then. The same name replaces an alarm that is set. The alarm
     * is saved with the call, so a call that fails sets none.
     *
     * @throws IllegalArgumentException when the payload is not JSON or has more than 16 KiB
     */
    void setAlarm(String name, AlarmTime when, Object payload);

    /** Cancels an alarm, with the save of the call. Without an alarm of this name it does nothing. */
    void cancelAlarm(String name);

    /**
     * Returns the alarms of this agent as in the API, by name, with what this call has set and cancelled.
     *
     * @throws IllegalArgumentException when an alarm that the call has set is wrong
     */
    List<Map<String, Object>> alarms() throws InterruptedException;

    /** Keeps a durable agent awake until the result is closed, for 1 s to 1 h at most. */
    KeptAwake keepAwake(Duration limit);

    /** Returns true in the initializer and in the first call after a start with a saved state. */
    boolean isWaking();

    /** Describes the last start of a durable agent; null for another agent. */
    Wake getWake();

    /** Returns a logger that writes to the instance's log, with the trace id. */
    Logger getLogger();
}
