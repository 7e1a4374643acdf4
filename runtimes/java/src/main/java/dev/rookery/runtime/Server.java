package dev.rookery.runtime;

import dev.rookery.runtime.Connection.Frame;
import dev.rookery.runtime.Protocol.Cancel;
import dev.rookery.runtime.Protocol.Hello;
import dev.rookery.runtime.Protocol.HelloOk;
import dev.rookery.runtime.Protocol.Stop;
import java.io.IOException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** Accepts connections, performs handshakes, and serves control connections. */
final class Server {
    private static final String SDK = "rookery-runtime-java/0.1.0";
    private static final long HANDSHAKE_SECONDS = 10;
    private static final int MAX_HANDSHAKES = 64;
    private static final long ACCEPT_PAUSE_MS = 1000;
    private static final double MAX_GRACE_MS = 1e12;

    private final Instance instance;
    private final byte[] secret;
    private final Semaphore handshakes = new Semaphore(MAX_HANDSHAKES);
    private final ScheduledThreadPoolExecutor timers;

    Server(Instance instance, String secret) {
        this.instance = instance;
        this.secret = secret.getBytes(StandardCharsets.UTF_8);
        timers = new ScheduledThreadPoolExecutor(0, body -> Threads.daemon("rookery-timer", body));
        timers.setRemoveOnCancelPolicy(true);
    }

    /** Accepts connections until the listener is closed. */
    void serve(ServerSocketChannel listener) throws InterruptedException {
        while (listener.isOpen()) {
            SocketChannel channel;
            try {
                channel = listener.accept();
            } catch (IOException error) {
                if (!listener.isOpen()) {
                    return;
                }
                // The user's code has used up all descriptors. Pause before the next accept instead of trying
                // in a loop.
                Log.line("rookery: cannot accept a connection: " + error.getMessage());
                Thread.sleep(ACCEPT_PAUSE_MS);
                continue;
            }
            if (!handshakes.tryAcquire()) {
                closeQuietly(channel);
                continue;
            }
            instance.threads.execute(() -> greet(channel));
        }
    }

    /** Performs the handshake of a connection and serves the connection to its end. */
    private void greet(SocketChannel channel) {
        Connection connection;
        String role;
        ScheduledFuture<?> deadline =
                timers.schedule(() -> closeQuietly(channel), HANDSHAKE_SECONDS, TimeUnit.SECONDS);
        try {
            connection = new Connection(channel, instance.watcher);
            role = shakeHands(connection);
        } catch (IOException | RuntimeException | Error error) { // too little memory for its buffers
            closeQuietly(channel);
            return;
        } finally {
            deadline.cancel(false);
            handshakes.release();
        }
        instance.watcher.add(connection);
        if (role.equals("data")) {
            instance.readData(connection);
        } else {
            readControl(connection);
        }
    }

    private String shakeHands(Connection connection) throws IOException {
        try {
            Frame frame = connection.read();
            if (frame.kind != Protocol.HELLO || frame.callId != 0) {
                throw new ProtocolException("expected HELLO as the first frame, got a frame of type " + frame.kind);
            }
            Hello hello = Protocol.read(frame.payload, "HELLO", Hello.class);
            if (hello.secret == null
                    || !MessageDigest.isEqual(hello.secret.getBytes(StandardCharsets.UTF_8), secret)) {
                throw new ProtocolException("wrong secret");
            }
            if (hello.version != Protocol.VERSION) {
                throw new ProtocolException("this runtime speaks protocol version " + Protocol.VERSION + ", not "
                        + hello.version);
            }
            boolean isData = "data".equals(hello.role);
            if (hello.client == null || hello.client.isEmpty() || !isData && !"control".equals(hello.role)) {
                throw new ProtocolException("HELLO needs a client, a text, and a role, data or control");
            }
            connection.takesSpans = hello.spans != 0;
            instance.join(connection, hello.client, isData, () -> connection.send(helloOk()));
            return hello.role;
        } catch (ProtocolException refused) {
            connection.send(Protocol.error(0, new Failure(Protocol.CODE_PROTOCOL, refused.getMessage())));
            throw refused;
        }
    }

    /** Returns the HELLO_OK frame. The caller holds the instance's lock. */
    private byte[] helloOk() {
        HelloOk answer = new HelloOk();
        answer.runtime = "java" + System.getProperty("java.version");
        answer.sdk = SDK;
        answer.state = instance.lifecycle.stateName();
        Failure failure = instance.lifecycle.loadFailure();
        instance.lifecycle.describe(answer);
        answer.error = failure == null ? null : failure.toMessage();
        return Protocol.frame(Protocol.HELLO_OK, 0, answer);
    }

    private void readControl(Connection connection) {
        try {
            while (true) {
                receiveControl(connection, connection.read());
            }
        } catch (IOException error) {
            Instance.logBroken(error);
        } catch (Error fault) {
            Log.thrown("rookery: a control connection is closed", fault);
        }
        instance.endControl(connection);
    }

    private void receiveControl(Connection connection, Frame frame) throws IOException {
        switch (frame.kind) {
            case Protocol.CANCEL:
                String reason = Protocol.read(frame.payload, "CANCEL", Cancel.class).reason;
                if (!Call.TIMEOUT.equals(reason) && !Call.CALLER.equals(reason) && !Call.INTERRUPT.equals(reason)) {
                    throw new ProtocolException("CANCEL needs a reason, timeout, caller or interrupt");
                }
                instance.receiveCancel(connection, frame.callId, reason);
                break;
            case Protocol.CREDIT:
                if (frame.payload.length != 4) {
                    throw new ProtocolException("CREDIT must have 4 bytes, not " + frame.payload.length);
                }
                instance.receiveCredit(connection, frame.callId, Protocol.getInt(frame.payload, 0) & 0xffff_ffffL);
                break;
            case Protocol.PING:
                connection.send(Protocol.frame(Protocol.PONG, 0, instance.count()));
                break;
            case Protocol.STOP:
                double graceMs = Protocol.read(frame.payload, "STOP", Stop.class).graceMs;
                if (!(graceMs >= 0 && graceMs < MAX_GRACE_MS)) {
                    throw new ProtocolException("STOP needs graceMs, a number of milliseconds");
                }
                instance.lifecycle.stop(connection, (long) graceMs);
                break;
            case Protocol.SAVED:
            case Protocol.ALARM_LIST:
                Durable durable = instance.lifecycle.durable();
                if (durable != null) {
                    durable.receive(connection.client, frame.kind, frame.payload);
                }
                break;
            default:
                throw new ProtocolException("a frame of type " + frame.kind
                        + " has no place on a control connection");
        }
    }

    private static void closeQuietly(SocketChannel channel) {
        try {
            channel.close();
        } catch (IOException ignored) {
            // A failed close needs no action: the channel is not used again.
        }
    }
}
