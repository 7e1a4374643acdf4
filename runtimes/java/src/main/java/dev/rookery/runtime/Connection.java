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

/** One connection of a control plane. One thread at a time reads; any may send. */
final class Connection {
    private static final int BUFFER_BYTES = 32 * 1024;
    /** CANCELs that came before their CALL was read. */
    private static final int MAX_EARLY_CANCELS = 4096;
    /** What one data connection may have queued before it is not read any further. */
    private static final int MAX_QUEUED_BYTES = 16 * 1024 * 1024;
    private static final int MAX_QUEUED_CALLS = 10_000;

    /** One frame. */
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

    /** When the write that goes on began, by {@link System#nanoTime}; 0 when none does. */
    private volatile long sendingSince;

    // Set by the handshake.
    volatile String client;

    /** Set while the thread that reads runs a handler. The one that clears it reads on. */
    final AtomicBoolean handling = new AtomicBoolean();
    /** Changes with each handler that the reading thread runs. */
    volatile int handled;
    /** The watcher's own. */
    int handledWhenWatched;

    // Guarded by the instance's lock, and only of use on a data connection.

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
        // Of a TCP connection; the addresses of junixsocket are subclasses of it.
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
     * Writes one frame whole. A connection that cannot take it is ended, which its reader then sees. False: nobody will get it.
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

    /** How long the write that goes on has taken, nanoseconds; -1 when none does. */
    long sendingFor() {
        long since = sendingSince;
        return since == 0 ? -1 : System.nanoTime() - since;
    }

    void close() {
        try {
            channel.close();
        } catch (IOException ignored) {
            // It is of no use either way.
        }
    }

    // With the instance's lock.

    boolean isFull() {
        return queuedCalls >= MAX_QUEUED_CALLS || queuedBytes > MAX_QUEUED_BYTES;
    }

    /** Notes a CANCEL whose CALL was not read yet, or was answered already. */
    void cancelEarly(int callId, String reason) {
        earlyCancels.put(callId, reason);
    }

    /** The reason of a CANCEL that came before its call; null when none came. */
    String takeEarlyCancel(int callId) {
        return earlyCancels.isEmpty() ? null : earlyCancels.remove(callId);
    }
}
