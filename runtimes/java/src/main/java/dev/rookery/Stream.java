package dev.rookery;

/** Sends events to the caller while the handler runs. May be used by any thread. */
public interface Stream {
    /**
     * Sends one event: a text as it is, any other value as JSON, null nothing. Blocks while the reader is behind.
     *
     * @throws CallCancelledException when the call was cancelled
     * @throws IllegalStateException when the call was answered
     */
    void write(Object event);
}
