package dev.rookery;

/**
 * A named part of a call, which the history of calls shows.
 *
 * <p>Any thread may use it. Above 128 spans, outside of a call and after the answer its methods do nothing.
 */
public interface Span extends AutoCloseable {
    /** Sets an attribute. Values other than texts, numbers and Booleans become texts; null sets nothing. */
    Span set(String name, Object value);

    /** Marks the span as failed. */
    Span fail(Throwable error);

    /** Ends the span. Only the first call counts. A span that is not ended ends with its call. */
    @Override
    void close();
}
