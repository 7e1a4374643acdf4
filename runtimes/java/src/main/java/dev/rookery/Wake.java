package dev.rookery;

import java.time.Instant;

/** Describes the last start of a durable agent. */
public interface Wake {
    /** Returns the cause, such as {@code created}, {@code call}, {@code alarm} or {@code crash}. */
    String getReason();

    /** Returns the number of starts before this one. */
    int getCount();

    /** Returns the time at which the agent fell asleep, or null if it did not sleep. */
    Instant getSleptAt();

    /** Returns the time of the last save before the start, or null if there was none. */
    Instant getSavedAt();

    /** Returns the number of saves before the start. */
    long getStateVersion();
}
