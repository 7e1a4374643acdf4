package dev.rookery;

import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** When an alarm calls the agent: see {@link Context#setAlarm}. */
public final class AlarmTime {
    private static final long LEAST_EVERY_SECONDS = 5;

    private final Map<String, Object> fields;

    private AlarmTime(Map<String, Object> fields) {
        this.fields = Collections.unmodifiableMap(fields);
    }

    /** Returns a time, once. A past time is now. */
    public static AlarmTime at(Instant time) {
        return of("at", time.toEpochMilli());
    }

    /** Returns the time after a duration from now on, once. */
    public static AlarmTime after(Duration duration) {
        if (duration.isNegative()) {
            throw new IllegalArgumentException("after needs a duration of at least 0");
        }
        return at(Instant.now().plus(duration));
    }

    /** Returns the times of an interval of at least 5 s, again and again. */
    public static AlarmTime every(Duration interval) {
        if (interval.getSeconds() < LEAST_EVERY_SECONDS) {
            throw new IllegalArgumentException("every needs an interval of at least " + LEAST_EVERY_SECONDS + " s");
        }
        return of("every", secondsOf(interval));
    }

    /** Returns the times of a cron expression with five fields, in UTC. */
    public static AlarmTime cron(String expression) {
        return of("cron", expression);
    }

    /** Returns the times of a cron expression with five fields, in a time zone such as Europe/Berlin. */
    public static AlarmTime cron(String expression, String zone) {
        return of("cron", expression).with("tz", zone);
    }

    /** Returns the same time for an alarm that is dropped if it would be delivered later than this. */
    public AlarmTime maxLate(Duration late) {
        if (late.isNegative()) {
            throw new IllegalArgumentException("maxLate needs a duration of at least 0");
        }
        return with("max_late_seconds", secondsOf(late));
    }

    /** Returns the members of the alarm in the runtime protocol, without its name and payload. */
    public Map<String, Object> fields() {
        return fields;
    }

    private static AlarmTime of(String name, Object value) {
        return new AlarmTime(Collections.emptyMap()).with(name, value);
    }

    private AlarmTime with(String name, Object value) {
        Map<String, Object> all = new LinkedHashMap<>(fields);
        all.put(name, value);
        return new AlarmTime(all);
    }

    private static double secondsOf(Duration duration) {
        return duration.toMillis() / 1000.0;
    }
}
