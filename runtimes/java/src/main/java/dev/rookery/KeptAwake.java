package dev.rookery;

/** A time during which a durable agent does not sleep: see {@link Context#keepAwake}. */
public interface KeptAwake extends AutoCloseable {
    /** Ends the time. Only the first call counts. */
    @Override
    void close();
}
