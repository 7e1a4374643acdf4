package dev.rookery.runtime;

import dev.rookery.KeptAwake;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** The times for which code keeps a durable agent awake. */
final class Awake {
    private static final long LONGEST_SECONDS = 3600;

    private final Instance instance;
    /** The ends of the times, as {@link System#nanoTime}. Guarded by this. */
    private final Map<Object, Long> ends = new HashMap<>();

    Awake(Instance instance) {
        this.instance = instance;
    }

    KeptAwake keep(Duration limit) {
        if (limit.getSeconds() < 1 || limit.compareTo(Duration.ofSeconds(LONGEST_SECONDS)) > 0) {
            throw new IllegalArgumentException("keepAwake takes 1 to " + LONGEST_SECONDS + " seconds");
        }
        Object key = new Object();
        synchronized (this) {
            ends.put(key, System.nanoTime() + limit.toNanos());
        }
        report();
        return () -> {
            boolean wasKept;
            synchronized (this) {
                wasKept = ends.remove(key) != null;
            }
            if (wasKept) {
                report();
            }
        };
    }

    /** Returns for how long code keeps the agent awake from now on; 0: it does not. */
    synchronized int seconds() {
        long longest = 0;
        for (long end : ends.values()) {
            longest = Math.max(longest, end - System.nanoTime());
        }
        long second = TimeUnit.SECONDS.toNanos(1);
        return (int) ((longest + second - 1) / second);
    }

    /** Sends KEEP_AWAKE in another thread, because an interrupt of the code's thread closes a connection. */
    private void report() {
        instance.threads.execute(() -> {
            // Without a connection the next greeting reports it.
            List<Connection> connections = instance.dataConnections();
            synchronized (this) {
                byte[] payload = new byte[4];
                Protocol.putInt(payload, 0, seconds());
                for (Connection connection : connections) {
                    connection.send(Protocol.frame(Protocol.KEEP_AWAKE, 0, payload));
                }
            }
        });
    }
}
