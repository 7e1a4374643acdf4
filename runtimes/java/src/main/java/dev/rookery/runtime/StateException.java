package dev.rookery.runtime;

/** A failure of the state of a durable agent. A call whose code throws it on fails with its code. */
final class StateException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    final transient Failure failure;

    StateException(Failure failure) {
        super(failure.getMessage());
        this.failure = failure;
    }
}
