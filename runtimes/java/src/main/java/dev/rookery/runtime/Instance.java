package dev.rookery.runtime;

import dev.rookery.runtime.Connection.Frame;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;

/**
 * Queues and runs the calls of this instance, and decides which thread reads which connection.
 *
 * <p>At most {@code concurrency} calls run at once, in order of arrival over all connections.
 */
final class Instance {
    /** The connections of a control plane. */
    private static final class Client {
        Connection data;
        Connection control;
    }

    final ExecutorService threads = Threads.pool();
    final Watcher watcher = new Watcher();
    final Lifecycle lifecycle = new Lifecycle(this);

    /**
     * Guards all fields below, and fields of {@link Connection}, {@link Call} and {@link Lifecycle} whose
     * comments name this lock.
     */
    final Object lock = new Object();
    private final Map<String, Client> clients = new HashMap<>();
    private final Set<Call> queue = new LinkedHashSet<>();
    private int running;
    private int concurrency;
    /** Set once the code is loaded. */
    private volatile Executor executor;
    /** True if another thread reads a data connection while its reader runs a handler. */
    private volatile boolean readsAhead = true;

    Instance() {
        watcher.start(this::readOn);
    }

    // Connections.

    /**
     * Assigns the connection to its client and answers its HELLO, before any other frame can be sent on it.
     *
     * @throws ProtocolException when the client already has a connection of that role
     */
    void join(Connection connection, String client, boolean isData, Runnable answer) throws ProtocolException {
        synchronized (lock) {
            Client peer = clients.computeIfAbsent(client, name -> new Client());
            if ((isData ? peer.data : peer.control) != null) {
                throw new ProtocolException("this client has such a connection already");
            }
            connection.client = client;
            if (isData) {
                peer.data = connection;
            } else {
                peer.control = connection;
            }
            answer.run();
            decideReading();
        }
    }

    /** Removes a connection from its client. The caller holds the lock. */
    private void leave(Connection connection) {
        Client peer = clients.get(connection.client);
        if (peer == null) {
            return;
        }
        if (peer.data == connection) {
            peer.data = null;
        }
        if (peer.control == connection) {
            peer.control = null;
        }
        if (peer.data == null && peer.control == null) {
            clients.remove(connection.client);
        }
        decideReading();
    }

    /** Ends a data connection: drops the waiting calls and cancels the running ones. */
    void endData(Connection connection) {
        connection.close();
        watcher.remove(connection);
        synchronized (lock) {
            if (connection.ended) {
                return;
            }
            connection.ended = true;
            leave(connection);
            for (Iterator<Call> calls = connection.calls.values().iterator(); calls.hasNext();) {
                Call call = calls.next();
                if (call.running) {
                    cancel(call, Call.CALLER);
                } else {
                    dequeue(call);
                    calls.remove();
                }
            }
            lock.notifyAll();
        }
        lifecycle.disconnected(connection);
    }

    /**
     * Closes and removes a control connection. Ends its client's data connection too if that is paused.
     *
     * <p>Otherwise no thread would notice that the client has disconnected.
     */
    void endControl(Connection connection) {
        connection.close();
        watcher.remove(connection);
        Connection unread = null;
        synchronized (lock) {
            Client peer = clients.get(connection.client);
            leave(connection);
            lifecycle.forget(connection);
            if (peer != null && peer.data != null && peer.data.paused) {
                unread = peer.data;
            }
        }
        if (unread != null) {
            endData(unread);
        }
    }

    /** Returns the data connection of a control connection's client, or null. The caller holds the lock. */
    private Connection dataOf(Connection control) {
        Client peer = clients.get(control.client);
        return peer == null ? null : peer.data;
    }

    /** Returns all data connections. */
    List<Connection> dataConnections() {
        List<Connection> all = new ArrayList<>();
        synchronized (lock) {
            for (Client peer : clients.values()) {
                if (peer.data != null) {
                    all.add(peer.data);
                }
            }
        }
        return all;
    }

    // Assignment of readers.

    /** Serves a data connection until it ends, or another thread continues reading. */
    void readData(Connection connection) {
        try {
            while (true) {
                Frame frame = connection.read();
                if (frame.kind == Protocol.CALL) {
                    Call call = receiveCall(connection, frame);
                    if (call != null && !runWhileReading(connection, call)) {
                        return;
                    }
                } else if (frame.kind == Protocol.INIT) {
                    lifecycle.receiveInit(connection, Protocol.read(frame.payload, "INIT", Protocol.Init.class));
                } else {
                    throw new ProtocolException("a frame of type " + frame.kind
                            + " has no place on a data connection");
                }
            }
        } catch (IOException error) {
            logBroken(error);
            endData(connection);
        } catch (RuntimeException | Error fault) { // too little memory, or a fault of ours
            Log.thrown("rookery: a data connection is closed", fault);
            endData(connection);
        }
    }

    /**
     * Runs a call and returns true if this thread is still the reader of its connection.
     *
     * <p>Another thread starts to read immediately if calls can run in parallel or arrive on several
     * connections. Otherwise it starts when the watcher or a CANCEL requires it.
     */
    private boolean runWhileReading(Connection connection, Call call) {
        connection.handled++;
        connection.handling.set(true);
        if (readsAhead) {
            readOn(connection);
        } else {
            watcher.wake();
        }
        run(call);
        return connection.handling.compareAndSet(true, false);
    }

    private void readOn(Connection connection) {
        if (connection.handling.compareAndSet(true, false)) {
            threads.execute(() -> readData(connection));
        }
    }

    /** Updates readsAhead. Called when a condition of it changes. The caller holds the lock. */
    void decideReading() {
        List<Connection> connections = dataConnections();
        boolean ahead = concurrency > 1 || connections.size() > 1 || lifecycle.isStopping();
        readsAhead = ahead;
        if (ahead) {
            for (Connection connection : connections) {
                readOn(connection);
            }
        }
    }

    static void logBroken(IOException error) {
        if (error instanceof ProtocolException) {
            Log.line("rookery: a control plane broke the protocol, its connection is closed: " + error.getMessage());
        }
    }

    // Calls.

    /** Returns the call if it runs now, or null if it waits or was refused. */
    private Call receiveCall(Connection connection, Frame frame) throws IOException {
        byte[] payload = frame.payload;
        int eventAt = payload.length < 2 ? 3 : 2 + ((payload[0] & 0xff) << 8 | payload[1] & 0xff);
        if (eventAt > payload.length) {
            throw new ProtocolException("a CALL is shorter than its header");
        }
        Call call = new Call(connection, frame.callId, Arrays.copyOfRange(payload, 2, eventAt),
                Arrays.copyOfRange(payload, eventAt, payload.length));
        Failure refusal;
        synchronized (lock) {
            if (call.id == 0 || connection.calls.containsKey(call.id)) {
                throw new ProtocolException("a CALL has a call id that is 0 or in use");
            }
            if (connection.ended) {
                throw new IOException("the connection has ended");
            }
            String reason = connection.takeEarlyCancel(call.id);
            refusal = reason != null ? Call.failureOf(reason) : lifecycle.refusal();
            if (refusal == null) {
                connection.calls.put(call.id, call);
                if (lifecycle.isReady() && running < concurrency) {
                    running++;
                    call.running = true;
                    return call;
                }
                enqueue(call);
                return null;
            }
        }
        connection.send(Protocol.error(call.id, refusal));
        return null;
    }

    /** Queues a call. Returns when its connection may be read further. The caller holds the lock. */
    private void enqueue(Call call) throws IOException {
        Connection connection = call.connection;
        queue.add(call);
        connection.queuedCalls++;
        connection.queuedBytes += call.event.length;
        try {
            connection.paused = connection.isFull();
            while (connection.paused && !connection.ended) {
                lock.wait();
                connection.paused = connection.isHalfFull();
            }
        } catch (InterruptedException stray) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted");
        } finally {
            connection.paused = false;
        }
    }

    /** Removes a call from the queue. The caller holds the lock. */
    private void dequeue(Call call) {
        queue.remove(call);
        Connection connection = call.connection;
        connection.queuedCalls--;
        connection.queuedBytes -= call.event.length;
        if (connection.paused) {
            lock.notifyAll();
        }
    }

    /** Runs a call that holds a slot, and then waiting calls in the same slot until none is left. */
    private void run(Call call) {
        Call next = call;
        while (next != null) {
            Executor.Outcome outcome = executor.run(next);
            next = finish(next, outcome);
        }
    }

    /** Answers a call whose code has ended, and returns the waiting call that gets its slot, or null. */
    private Call finish(Call call, Executor.Outcome outcome) {
        Call next = null;
        String reason;
        synchronized (lock) {
            call.connection.calls.remove(call.id);
            reason = call.reason();
            if (reason != null) {
                watcher.removeCancelled(call);
            }
            Iterator<Call> waiting = queue.iterator();
            if (waiting.hasNext() && !lifecycle.isStopping()) {
                next = waiting.next();
                dequeue(next);
                next.running = true;
            } else {
                running--;
                lock.notifyAll();
            }
        }
        Failure failure = outcome.failure;
        if (reason != null && !(Call.INTERRUPT.equals(reason) && failure == null)) {
            failure = Call.failureOf(reason);
        }
        byte[] save = null;
        try {
            save = executor.saveOf(call, failure != null);
        } catch (Failure unsaved) {
            failure = unsaved;
        }
        try {
            if (outcome.spans != null) {
                call.connection.send(outcome.spans);
            }
            if (save != null) {
                call.connection.send(save);
            }
            call.connection.send(failure == null
                    ? Protocol.result(call.id, outcome.value, outcome.micros)
                    : Protocol.error(call.id, failure, outcome.micros));
        } catch (RuntimeException | Error fault) { // too little memory: the next call keeps its slot
            Log.thrown("rookery: a data connection is closed", fault);
            endData(call.connection);
        }
        return next;
    }

    /** Cancels a running call. The caller holds the lock. */
    private void cancel(Call call, String reason) {
        call.cancel(reason);
        watcher.addCancelled(call);
    }

    void receiveCancel(Connection control, int callId, String reason) {
        Connection data;
        Call call;
        synchronized (lock) {
            data = dataOf(control);
            if (data == null) {
                return;
            }
            call = data.calls.get(callId);
            if (call == null) {
                data.cancelEarly(callId, reason);
            } else if (call.running) {
                cancel(call, reason);
                return;
            } else {
                dequeue(call);
                data.calls.remove(callId);
            }
        }
        if (call == null) {
            // The CALL may wait in the kernel while a handler runs. Reading on answers it now.
            readOn(data);
        } else {
            data.send(Protocol.error(callId, Call.failureOf(reason)));
        }
    }

    void receiveCredit(Connection control, int callId, long bytes) {
        Call call;
        synchronized (lock) {
            Connection data = dataOf(control);
            call = data == null ? null : data.calls.get(callId);
        }
        CallStream stream = call == null ? null : call.stream();
        if (stream != null) {
            stream.grant(bytes);
        }
    }

    Protocol.Pong count() {
        Protocol.Pong pong = new Protocol.Pong();
        synchronized (lock) {
            pong.running = running;
            pong.queued = queue.size();
        }
        return pong;
    }

    // Methods for the lifecycle.

    /** Lets calls run, once the code is loaded. The caller holds the lock. */
    void open(Executor loaded, int slots) {
        executor = loaded;
        concurrency = slots;
        decideReading();
    }

    /** Runs the calls that arrived before the code was loaded. */
    void startQueued() {
        List<Call> started = new ArrayList<>();
        synchronized (lock) {
            while (running < concurrency && !queue.isEmpty() && lifecycle.isReady()) {
                Call call = queue.iterator().next();
                dequeue(call);
                running++;
                call.running = true;
                started.add(call);
            }
        }
        for (Call call : started) {
            threads.execute(() -> run(call));
        }
    }

    /** Answers the waiting calls with a refusal and cancels the running ones. */
    void cancelAll(Failure refusal) {
        List<Call> waiting;
        synchronized (lock) {
            waiting = new ArrayList<>(queue);
            for (Call call : waiting) {
                dequeue(call);
                call.connection.calls.remove(call.id);
            }
            for (Connection connection : dataConnections()) {
                for (Call call : connection.calls.values()) {
                    cancel(call, Call.STOP);
                }
            }
        }
        for (Call call : waiting) {
            call.connection.send(Protocol.error(call.id, refusal));
        }
    }

    /** Waits until no call runs. Returns false if one still does at that time. The caller holds the lock. */
    boolean awaitIdle(long untilNanos) throws InterruptedException {
        while (running > 0) {
            long left = untilNanos - System.nanoTime();
            if (left <= 0) {
                return false;
            }
            lock.wait(left / 1_000_000 + 1);
        }
        return true;
    }
}
