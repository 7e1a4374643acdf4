package dev.rookery;

/** Sends events to the caller while the handler runs. Any thread may use it. */
public interface Stream {
    /**
     * Sends one event: a text as it is, any other value as JSON; null sends nothing. Blocks while the reader
     * is behind.
     *
     * @throws CallCancelledException when the call was cancelled @throws IllegalStateException when the call
     * was answered @throws IllegalArgumentException when the value is not JSON, or has more than about 7 MiB
     */
    void write(Object event);
}
