package dev.rookery.runtime;

import dev.rookery.CallCancelledException;
import java.util.concurrent.TimeUnit;

/** One CALL, from its arrival to its answer. */
final class Call {
    static final String TIMEOUT = "timeout";
    static final String CALLER = "caller";
    static final String INTERRUPT = "interrupt";
    static final String STOP = "stop";

    private static final long INTERRUPT_AGAIN_NANOS = TimeUnit.SECONDS.toNanos(1);

    final Connection connection;
    final int id;
    final byte[] event;
    final long arrivedNanos = System.nanoTime();
    private final byte[] headerBytes;

    private Protocol.CallHeader header;
    private CallStream stream;
    private Spans spans;
    /** True once code of this call can no longer use the state of a durable agent. */
    private volatile boolean isOver;

    /** True once the call runs. Guarded by the instance's lock. */
    boolean running;

    // The following fields are guarded by this.

    /**
     * Reason of the cancellation; null while the call is not cancelled. Written under the instance's lock
     * too.
     */
    private String reason;
    /** The thread that currently runs user code of this call; null when none does. */
    private Thread interruptible;
    private boolean due;
    private long interruptedNanos;

    Call(Connection connection, int id, byte[] headerBytes, byte[] event) {
        this.connection = connection;
        this.id = id;
        this.headerBytes = headerBytes;
        this.event = event;
    }

    /** Returns the header. Parses it on first use, since most handlers never read it. */
    synchronized Protocol.CallHeader header() {
        if (header == null) {
            try {
                header = Protocol.read(headerBytes, "the header of a CALL", Protocol.CallHeader.class);
            } catch (ProtocolException error) {
                Log.line("rookery: " + error.getMessage());
                header = new Protocol.CallHeader();
            }
        }
        return header;
    }

    /** Returns the call's stream, or null when its caller did not request one. Creates it on first use. */
    synchronized CallStream stream() {
        if (stream == null && header().stream) {
            stream = new CallStream(this, header().credit);
        }
        return stream;
    }

    /** Returns the stream if it has been created, otherwise null. */
    synchronized CallStream openedStream() {
        return stream;
    }

    /** Returns the call's spans. Creates them on first use. */
    synchronized Spans spans() {
        if (spans == null) {
            spans = new Spans();
        }
        return spans;
    }

    /** Returns the SPANS frame; null if the code made no spans, or the client does not accept them. */
    byte[] spansFrame(long began) {
        Spans made;
        synchronized (this) {
            made = spans;
        }
        return made == null || !connection.takesSpans ? null : made.frame(id, began);
    }

    /** Returns the time at which the call ends, as {@link System#nanoTime}; null without a limit. */
    Long endNanos() {
        double remainingMs = header().remainingMs;
        return remainingMs > 0 ? arrivedNanos + (long) (remainingMs * 1e6) : null;
    }

    boolean isOver() {
        return isOver;
    }

    void endState() {
        isOver = true;
    }

    synchronized String reason() {
        return reason;
    }

    /**
     * Returns true if the call's code has to end. An interrupted call that has noticed and continues does not
     * have to.
     */
    synchronized boolean mustStop() {
        return reason != null && (due || !INTERRUPT.equals(reason));
    }

    /** Cancels the call: interrupts its code if that runs, otherwise as soon as it does. */
    void cancel(String why) {
        CallStream open;
        synchronized (this) {
            reason = why;
            due = true;
            interruptWhenDue();
            open = stream;
        }
        if (open != null) {
            open.grant(0);
        }
    }

    /**
     * Interrupts code again that continues, at least one second later. After a mere interrupt request it may
     * continue.
     */
    synchronized void interruptAgain() {
        if (interruptible != null && !INTERRUPT.equals(reason)
                && System.nanoTime() - interruptedNanos > INTERRUPT_AGAIN_NANOS) {
            due = true;
            interruptWhenDue();
        }
    }

    /** Called when user code begins in this thread, or continues after code of the runtime. */
    synchronized void enter() {
        interruptible = Thread.currentThread();
        interruptWhenDue();
    }

    /** Called when user code has ended in this thread. No interrupt of the runtime follows. */
    synchronized void leave() {
        interruptible = null;
        Thread.interrupted();
    }

    /** Returns true if {@link #enter} was called in this thread. */
    synchronized boolean isEnteredHere() {
        return interruptible == Thread.currentThread();
    }

    /**
     * Called when user code calls the runtime for a short time. Keeps a pending interrupt for {@link #enter}.
     */
    synchronized void suspend() {
        interruptible = null;
        due |= Thread.interrupted();
    }

    /** Keeps an interrupt by another thread of the user's code for {@link #enter}. */
    synchronized void interruptLater() {
        due = true;
    }

    private void interruptWhenDue() {
        if (due && interruptible != null) {
            due = false;
            interruptedNanos = System.nanoTime();
            interruptible.interrupt();
        }
    }

    String text() {
        return textOf(reason());
    }

    static String textOf(String reason) {
        switch (String.valueOf(reason)) {
            case TIMEOUT:
                return "the call timed out";
            case CALLER:
                return "the caller went away";
            case INTERRUPT:
                return "the call was interrupted";
            case STOP:
                return "the instance is stopping";
            default:
                return "the call was cancelled";
        }
    }

    /** Returns the failure that answers a cancelled call. */
    static Failure failureOf(String reason) {
        if (TIMEOUT.equals(reason)) {
            return new Failure(Protocol.CODE_TIMEOUT, textOf(reason));
        }
        return Failure.ofHandler("CallCancelled: " + textOf(reason));
    }

    /**
     * Returns the exception for the call's code while it cannot be interrupted. Clears the pending interrupt.
     */
    synchronized CallCancelledException cancelled() {
        due = false;
        return new CallCancelledException(text());
    }
}
