package dev.rookery.runtime;

import dev.rookery.Stream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;

/** Sends CHUNK frames of a call within the credit that their reader grants. */
final class CallStream implements Stream {
    private static final int MAX_CHUNK_BYTES = Protocol.MAX_FRAME_BYTES - Protocol.FRAME_OVERHEAD;
    /**
     * Threads that write for other threads of the user's code.
     *
     * <p>Those may be interrupted by user code, and an interrupt closes the channel under a thread that
     * writes to it.
     */
    private static final ExecutorService WRITERS = Threads.pool();

    private final Call call;
    /** Held while a chunk is written, so that no chunk follows the answer. */
    private final Object sendLock = new Object();

    // The following fields are guarded by this.
    private long credit;
    private boolean closed;

    CallStream(Call call, long credit) {
        this.call = call;
        this.credit = credit;
    }

    @Override
    public void write(Object event) {
        if (event == null) {
            return;
        }
        byte[] data;
        try {
            data = event instanceof CharSequence
                    ? event.toString().getBytes(StandardCharsets.UTF_8)
                    : Json.bytes(event);
        } catch (Failure failure) {
            throw new IllegalArgumentException(failure.getMessage());
        }
        if (data.length > MAX_CHUNK_BYTES) {
            throw new IllegalArgumentException("a stream event of " + data.length + " bytes exceeds the limit of "
                    + MAX_CHUNK_BYTES);
        }
        if (call.isEnteredHere()) {
            call.suspend();
            try {
                send(data);
            } finally {
                call.enter();
            }
        } else {
            sendElsewhere(data);
        }
    }

    private void sendElsewhere(byte[] data) {
        Future<?> sent = WRITERS.submit(() -> send(data));
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    sent.get();
                    return;
                } catch (InterruptedException again) {
                    interrupted = true;
                } catch (ExecutionException error) {
                    if (error.getCause() instanceof RuntimeException) {
                        throw (RuntimeException) error.getCause();
                    }
                    throw (Error) error.getCause();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void send(byte[] data) {
        synchronized (sendLock) {
            takeCredit(Math.max(1, data.length)); // an empty chunk costs one byte
            call.connection.send(Protocol.frame(Protocol.CHUNK, call.id, data));
        }
    }

    /** Waits until credit is available. One chunk may overdraw it. */
    private synchronized void takeCredit(int bytes) {
        boolean interrupted = false;
        while (credit <= 0 && !closed && !call.mustStop()) {
            try {
                wait();
            } catch (InterruptedException foreign) { // a cancel does not interrupt here: mustStop reports it
                interrupted = true;
            }
        }
        if (call.mustStop()) {
            throw call.cancelled();
        }
        if (closed) {
            throw new IllegalStateException("the stream has ended: its call was answered");
        }
        credit -= bytes;
        if (interrupted) {
            call.interruptLater();
        }
    }

    /** Adds credit. A count of 0 only wakes the writer. */
    synchronized void grant(long bytes) {
        credit += bytes;
        notifyAll();
    }

    /** Ends the stream. Returns when no chunk can be sent any more. */
    void finish() {
        synchronized (this) {
            closed = true;
            notifyAll();
        }
        synchronized (sendLock) { // its holder notices the end or has written
        }
    }
}
