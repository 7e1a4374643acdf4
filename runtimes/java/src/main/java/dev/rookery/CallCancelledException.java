package dev.rookery;

/** The call timed out, was interrupted, or its caller went away. */
public class CallCancelledException extends RuntimeException {
    public CallCancelledException(String message) {
        super(message);
    }
}
