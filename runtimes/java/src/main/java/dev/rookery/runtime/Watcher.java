package dev.rookery.runtime;

import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * Looks after what takes long, so that what is quick need not care. The thread that reads a connection runs a handler itself:
 * handing it over would cost the caller a wake-up. When a handler is not over soon, another thread is asked to read on, which
 * sees the end of the connection. Also ends connections that take nothing, and interrupts cancelled code again that has
 * swallowed its interrupt. With nothing to look after it is parked without a timeout.
 */
final class Watcher implements Runnable {
    private static final long TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
    /** Ticks without anything to look after, before it parks: waking it for each call would cost more than they do. */
    private static final int IDLE_TICKS = 50;
    /** A control plane that takes nothing for so long has lost its connection. */
    private static final long SEND_TIMEOUT_NANOS = TimeUnit.SECONDS.toNanos(30);

    private final List<Connection> connections = new CopyOnWriteArrayList<>();
    private final Set<Call> cancelled = ConcurrentHashMap.newKeySet();
    private final Thread thread = Threads.daemon("rookery-watcher", this);
    private volatile boolean awake;
    private volatile Reader reader;

    /** Has somebody read on. */
    interface Reader {
        void readOn(Connection connection);
    }

    void start(Reader newReader) {
        reader = newReader;
        thread.start();
    }

    void add(Connection connection) {
        connections.add(connection);
    }

    void remove(Connection connection) {
        connections.remove(connection);
    }

    /** A call was cancelled; it is forgotten when it has ended. */
    void addCancelled(Call call) {
        cancelled.add(call);
        wake();
    }

    void removeCancelled(Call call) {
        cancelled.remove(call);
    }

    /** There may be something to look after. It has to be visible before. */
    void wake() {
        if (!awake) {
            awake = true;
            LockSupport.unpark(thread);
        }
    }

    @Override
    public void run() {
        int idleTicks = 0;
        while (true) {
            if (look()) {
                idleTicks = 0;
            } else if (++idleTicks > IDLE_TICKS) {
                awake = false;
                // An earlier event has woken nobody.
                if (look()) {
                    awake = true;
                } else {
                    while (!awake) {
                        LockSupport.park(this);
                        Thread.interrupted();
                    }
                }
                idleTicks = 0;
            }
            LockSupport.parkNanos(this, TICK_NANOS);
            Thread.interrupted();
        }
    }

    /** Whether there was anything to look after. */
    private boolean look() {
        boolean busy = false;
        for (Connection connection : connections) {
            if (connection.handling.get()) {
                busy = true;
                int handled = connection.handled;
                if (handled == connection.handledWhenWatched) {
                    reader.readOn(connection);
                }
                connection.handledWhenWatched = handled;
            }
            long sending = connection.sendingFor();
            if (sending >= 0) {
                busy = true;
                if (sending > SEND_TIMEOUT_NANOS) {
                    connection.close();
                }
            }
        }
        for (Call call : cancelled) {
            busy = true;
            call.interruptAgain();
        }
        return busy;
    }
}
