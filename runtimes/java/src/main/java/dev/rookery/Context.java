package dev.rookery;

import java.util.Map;
import java.util.concurrent.ConcurrentMap;

/**
 * What a handler can know about its call and about the instance that it runs in. In the initializer and in pre_stop what
 * belongs to a call is empty.
 */
public interface Context {
    /** Identifies the request that this call belongs to, in every log. */
    String getTraceID();

    /** W3C trace context: the caller's trace, a span of this call's own. Pass it on as it is. */
    String getTraceparent();

    /** Identifies the call. */
    String getRequestID();

    /** The session that the caller named, {@code ""} without one. */
    String getSessionID();

    /** The call's own headers that the platform does not own, names in lower case. */
    Map<String, String> getHeaders();

    /** When the call ends, as {@link System#currentTimeMillis} would say it; {@link Long#MAX_VALUE} without a bound. */
    long getDeadlineMillis();

    /** Milliseconds until the call is cancelled, at least 0; {@link Long#MAX_VALUE} without a bound. */
    long getRemainingTimeInMilliSeconds();

    /**
     * The call's stream.
     *
     * @throws IllegalStateException when the caller does not take one
     */
    Stream getStream();

    /** The UUID of the instance. */
    String getInstanceID();

    /** Who owns the instance. */
    String getTenantID();

    String getNamespace();

    String getName();

    /** The registered function's name, {@code ""} for an agent that was made without one. */
    String getFunctionName();

    String getVersion();

    /** The service in the function's name ({@code 0@service@function}), else the namespace. */
    String getPackage();

    /** Megabytes. */
    int getMemorySize();

    /** Thousandths of a core. */
    int getCPUNumber();

    /** A variable of the environment, null when it is not set. */
    String getUserData(String key);

    /** A map that lives as long as the instance; the same one in every call. */
    ConcurrentMap<String, Object> getState();

    /** Writes to the instance's log, with the trace id. */
    Logger getLogger();
}
