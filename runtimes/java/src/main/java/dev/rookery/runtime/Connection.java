package dev.rookery.runtime;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

/** A connection of a control plane. One thread at a time reads; any thread may send. */
final class Connection {
    private static final int BUFFER_BYTES = 32 * 1024;
    /** Limit for stored CANCELs that arrived before their CALL was read. */
    private static final int MAX_EARLY_CANCELS = 4096;
    /**
     * Limits of the waiting calls of a data connection. Reading pauses above them, until half of that is
     * left.
     */
    private static final int MAX_QUEUED_BYTES = 8 * 1024 * 1024;
    private static final int MAX_QUEUED_CALLS = 512;

    /** A frame of the protocol. */
    static final class Frame {
        final int kind;
        final int callId;
        final byte[] payload;

        Frame(int kind, int callId, byte[] payload) {
            this.kind = kind;
            this.callId = callId;
            this.payload = payload;
        }
    }

    private final SocketChannel channel;
    private final Watcher watcher;
    private final ByteBuffer in = ByteBuffer.allocateDirect(BUFFER_BYTES);
    private final ByteBuffer out = ByteBuffer.allocateDirect(BUFFER_BYTES);
    private final byte[] header = new byte[Protocol.HEADER_BYTES];
    private final Object sendLock = new Object();

    /** Time at which the current write began, as {@link System#nanoTime}; 0 when there is none. */
    private volatile long sendingSince;

    // Set by the handshake.
    volatile String client;
    /** True if the client accepts SPANS. */
    volatile boolean takesSpans;

    /**
     * True while the thread that reads runs a handler. The thread that sets it to false continues reading.
     */
    final AtomicBoolean handling = new AtomicBoolean();
    /** Number that changes with each handler that the reading thread runs. */
    volatile int handled;
    /** The value of {@code handled} in the watcher's last pass. Only the watcher uses it. */
    int handledWhenWatched;

    // The following fields are guarded by the instance's lock. Only data connections use them.

    final Map<Integer, Call> calls = new HashMap<>();
    int queuedCalls;
    int queuedBytes;
    boolean paused;
    boolean ended;
    private final Map<Integer, String> earlyCancels = new LinkedHashMap<Integer, String>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Integer, String> eldest) {
            return size() > MAX_EARLY_CANCELS;
        }
    };

    Connection(SocketChannel channel, Watcher watcher) throws IOException {
        this.channel = channel;
        this.watcher = watcher;
        in.limit(0);
        // True for TCP only: the addresses of junixsocket are subclasses.
        SocketAddress local = channel.getLocalAddress();
        if (local != null && local.getClass() == InetSocketAddress.class) {
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        }
    }

    Frame read() throws IOException {
        fill(header);
        int length = Protocol.getInt(header, 0);
        if (length < Protocol.FRAME_OVERHEAD || length > Protocol.MAX_FRAME_BYTES) {
            throw new ProtocolException("a frame of " + (length & 0xffff_ffffL) + " bytes; "
                    + Protocol.FRAME_OVERHEAD + " to " + Protocol.MAX_FRAME_BYTES + " are allowed");
        }
        byte[] payload = new byte[length - Protocol.FRAME_OVERHEAD];
        fill(payload);
        return new Frame(header[4] & 0xff, Protocol.getInt(header, 5), payload);
    }

    private void fill(byte[] target) throws IOException {
        int have = 0;
        while (true) {
            int part = Math.min(in.remaining(), target.length - have);
            in.get(target, have, part);
            have += part;
            if (have == target.length) {
                return;
            }
            in.clear();
            int count = channel.read(in);
            in.flip();
            if (count < 0) {
                throw new EOFException();
            }
        }
    }

    /**
     * Writes one frame as a whole. Returns false if that failed.
     *
     * <p>Closes the connection then, which the connection's reader notices.
     */
    boolean send(byte[] frame) {
        synchronized (sendLock) {
            long now = System.nanoTime();
            sendingSince = now == 0 ? 1 : now;
            watcher.wake();
            try {
                int sent = 0;
                while (sent < frame.length) {
                    out.clear();
                    int part = Math.min(out.remaining(), frame.length - sent);
                    out.put(frame, sent, part);
                    out.flip();
                    while (out.hasRemaining()) {
                        channel.write(out);
                    }
                    sent += part;
                }
                return true;
            } catch (IOException error) {
                close();
                return false;
            } finally {
                sendingSince = 0;
            }
        }
    }

    /** Returns the duration of the current write in nanoseconds, or -1 when there is none. */
    long sendingFor() {
        long since = sendingSince;
        return since == 0 ? -1 : System.nanoTime() - since;
    }

    void close() {
        try {
            channel.close();
        } catch (IOException ignored) {
            // A failed close needs no action: the connection is not used again.
        }
    }

    // Callers of the following methods hold the instance's lock.

    boolean isFull() {
        return queuedCalls >= MAX_QUEUED_CALLS || queuedBytes > MAX_QUEUED_BYTES;
    }

    boolean isHalfFull() {
        return queuedCalls > MAX_QUEUED_CALLS / 2 || queuedBytes > MAX_QUEUED_BYTES / 2;
    }

    /** Stores a CANCEL whose CALL was not read yet or has been answered. */
    void cancelEarly(int callId, String reason) {
        earlyCancels.put(callId, reason);
    }

    /** Returns the reason of a CANCEL that arrived before its call, or null. Removes the stored CANCEL. */
    String takeEarlyCancel(int callId) {
        return earlyCancels.isEmpty() ? null : earlyCancels.remove(callId);
    }
}
