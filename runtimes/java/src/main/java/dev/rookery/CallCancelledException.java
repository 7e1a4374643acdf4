package dev.rookery;

/** Thrown when the call timed out or was interrupted, its caller disconnected, or the instance stops. */
public class CallCancelledException extends RuntimeException {
    public CallCancelledException(String message) {
        super(message);
    }
}
