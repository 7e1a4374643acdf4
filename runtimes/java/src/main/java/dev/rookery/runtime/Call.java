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

    /** Guarded by the instance's lock. */
    boolean running;

    // Guarded by this.

    /** Why it was cancelled; null when it was not. Written with the instance's lock too. */
    private String reason;
    /** Whose code is the user's at the moment; null when nobody's is. */
    private Thread interruptible;
    private boolean due;
    private long interruptedNanos;

    Call(Connection connection, int id, byte[] headerBytes, byte[] event) {
        this.connection = connection;
        this.id = id;
        this.headerBytes = headerBytes;
        this.event = event;
    }

    /** Parsed when somebody asks: most handlers never do. */
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

    /** Its stream; null when its caller takes none. */
    synchronized CallStream stream() {
        if (stream == null && header().stream) {
            stream = new CallStream(this, header().credit);
        }
        return stream;
    }

    /** The stream when somebody has asked for it. */
    synchronized CallStream openedStream() {
        return stream;
    }

    /** When it ends, by {@link System#nanoTime}; null without a bound. */
    Long endNanos() {
        double remainingMs = header().remainingMs;
        return remainingMs > 0 ? arrivedNanos + (long) (remainingMs * 1e6) : null;
    }

    synchronized String reason() {
        return reason;
    }

    /** Whether its code shall end: not any more where it was interrupted, knows it, and goes on. */
    synchronized boolean mustStop() {
        return reason != null && (due || !INTERRUPT.equals(reason));
    }

    /** Cancels it: its code is interrupted when it runs, or as soon as it does. */
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

    /** Code that goes on after an interrupt gets another, unless the interrupt was all that was asked for. */
    synchronized void interruptAgain() {
        if (interruptible != null && !INTERRUPT.equals(reason)
                && System.nanoTime() - interruptedNanos > INTERRUPT_AGAIN_NANOS) {
            due = true;
            interruptWhenDue();
        }
    }

    /** The user's code begins in this thread, or goes on after the runtime's own. */
    synchronized void enter() {
        interruptible = Thread.currentThread();
        interruptWhenDue();
    }

    /** The user's code ended in this thread, or has called the runtime. No interrupt of ours comes after it. */
    synchronized void leave() {
        interruptible = null;
        Thread.interrupted();
    }

    /** Whether this thread is the one that {@link #enter} was called in. */
    synchronized boolean isEnteredHere() {
        return interruptible == Thread.currentThread();
    }

    /** Like {@link #leave}, for a short time: an interrupt that came is kept for {@link #enter}. */
    synchronized void suspend() {
        interruptible = null;
        due |= Thread.interrupted();
    }

    /** Somebody else has interrupted its code, which did not notice yet. */
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

    /** The answer of a call that was cancelled. */
    static Failure failureOf(String reason) {
        if (TIMEOUT.equals(reason)) {
            return new Failure(Protocol.CODE_TIMEOUT, textOf(reason));
        }
        return Failure.ofHandler("CallCancelled: " + textOf(reason));
    }

    /** What its code gets where it cannot be interrupted. */
    synchronized CallCancelledException cancelled() {
        due = false;
        return new CallCancelledException(text());
    }
}
