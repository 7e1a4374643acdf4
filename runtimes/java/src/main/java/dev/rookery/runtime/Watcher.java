package dev.rookery.runtime;

import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * Handles slow calls and slow connections, so that the fast path stays simple.
 *
 * <p>The thread that reads a connection runs a handler itself, because another thread would add a wake-up to
 * the call. If the handler has not ended at the watcher's next pass, the watcher has another thread continue
 * reading, which also detects the end of the connection. The watcher also closes connections whose client
 * reads nothing, and interrupts cancelled code again. It parks without a timeout when there is nothing to
 * watch.
 */
final class Watcher implements Runnable {
    private static final long TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
    /**
     * Number of passes with nothing to watch before the watcher parks. Waking it for each call would cost
     * more than they do.
     */
    private static final int IDLE_TICKS = 50;
    /** Time after which a control plane that reads nothing loses its connection. */
    private static final long SEND_TIMEOUT_NANOS = TimeUnit.SECONDS.toNanos(30);

    private final List<Connection> connections = new CopyOnWriteArrayList<>();
    private final Set<Call> cancelled = ConcurrentHashMap.newKeySet();
    private final Thread thread = Threads.daemon("rookery-watcher", this);
    private volatile boolean awake;
    private volatile Reader reader;

    /** Starts another reader for a connection. */
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

    /** Watches a cancelled call until it has ended. */
    void addCancelled(Call call) {
        cancelled.add(call);
        wake();
    }

    void removeCancelled(Call call) {
        cancelled.remove(call);
    }

    /** Wakes the watcher. Call it after the state to watch is visible to other threads. */
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
                // An event before `awake` was cleared has not woken this thread, so check again.
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

    /** Does one pass. Returns true if there was anything to watch. */
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
