package dev.rookery.runtime;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Creates the runtime's threads. All are daemons, so none keeps the process alive. */
final class Threads {
    private static final long KEEP_SECONDS = 60;

    private Threads() {
    }

    static Thread daemon(String name, Runnable body) {
        Thread thread = new Thread(body, name);
        thread.setDaemon(true);
        return thread;
    }

    /**
     * Returns a pool that starts threads on demand. The connections and the running calls limit their number.
     */
    static ExecutorService pool() {
        AtomicInteger number = new AtomicInteger();
        return new ThreadPoolExecutor(0, Integer.MAX_VALUE, KEEP_SECONDS, TimeUnit.SECONDS, new SynchronousQueue<>(),
                body -> daemon("rookery-" + number.incrementAndGet(), body));
    }
}
