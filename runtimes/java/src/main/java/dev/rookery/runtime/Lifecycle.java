package dev.rookery.runtime;

import dev.rookery.runtime.Protocol.HelloOk;
import dev.rookery.runtime.Protocol.Init;
import dev.rookery.runtime.Protocol.InitOk;
import dev.rookery.runtime.Protocol.Stopped;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Handles INIT and STOP, which happen once. The instance's lock guards the state. */
final class Lifecycle {
    /** Minimum for the grace of a STOP, so that with a grace of 0 the instance can still send STOPPED. */
    private static final long LEAST_GRACE_MS = 100;
    private static final int MAX_CONCURRENCY = 1000;
    private static final int MAX_RESULT_BYTES = Protocol.MAX_FRAME_BYTES - Protocol.HEADER_BYTES;
    /** Time limit for the shutdown hooks of the JVM. */
    private static final long EXIT_MS = 2000;

    private enum State {
        NEW, INITIALIZING, READY, FAILED, STOPPING
    }

    /** User code outside calls that may be interrupted. */
    private interface Step<T> extends Callable<T> {
    }

    private final Instance instance;
    private State state = State.NEW;
    private Failure failure;
    /** The frame that answers every INIT; null until the outcome is known. */
    private byte[] initAnswer;
    private final List<Connection> waiting = new ArrayList<>();
    private final List<Connection> stoppers = new ArrayList<>();
    private Thread initThread;
    private boolean initEnded = true;
    private Code code;
    private Facts facts;

    Lifecycle(Instance instance) {
        this.instance = instance;
    }

    // Callers of the following methods hold the lock.

    boolean isReady() {
        return state == State.READY;
    }

    boolean isStopping() {
        return state == State.STOPPING;
    }

    String stateName() {
        return state.name().toLowerCase(java.util.Locale.ROOT);
    }

    /** Returns the reason why the code could not be loaded, or null if it could or loading has not ended. */
    Failure loadFailure() {
        return state == State.FAILED ? failure : null;
    }

    /** Returns the failure that refuses a new call, or null if the call is accepted. */
    Failure refusal() {
        switch (state) {
            case NEW:
                return new Failure(Protocol.CODE_PROTOCOL, "a CALL came before INIT");
            case FAILED:
                return failure;
            case STOPPING:
                return Failure.STOPPING;
            default:
                return null;
        }
    }

    /** Adds the state of a durable agent to a greeting. */
    void describe(HelloOk answer) {
        if (facts != null && facts.durable != null) {
            facts.durable.describe(answer);
        }
    }

    /** Ends the waits of code for answers on a data connection that has ended. */
    void disconnected(Connection connection) {
        Durable durable = durable();
        if (durable != null) {
            durable.disconnected(connection);
        }
    }

    /** Returns the state of a durable agent; null before INIT, and for another agent. */
    Durable durable() {
        synchronized (instance.lock) {
            return facts == null ? null : facts.durable;
        }
    }

    /** Removes a closed connection from those that wait for STOPPED. */
    void forget(Connection connection) {
        stoppers.remove(connection);
    }

    // INIT.

    void receiveInit(Connection connection, Init init) {
        byte[] answer;
        if (init.concurrency < 1 || init.concurrency > MAX_CONCURRENCY
                || init.maxResultBytes < 1 || init.maxResultBytes > MAX_RESULT_BYTES) {
            answer = Protocol.error(0, new Failure(Protocol.CODE_PROTOCOL, "INIT needs concurrency, 1 to "
                    + MAX_CONCURRENCY + ", and maxResultBytes, 1 to " + MAX_RESULT_BYTES));
        } else {
            synchronized (instance.lock) {
                answer = initAnswer != null ? initAnswer : isStopping() ? Protocol.error(0, Failure.STOPPING) : null;
                if (answer == null) {
                    waiting.add(connection);
                    if (state == State.NEW) {
                        state = State.INITIALIZING;
                        initEnded = false;
                        facts = new Facts(init,
                                init.durable == null ? null : new Durable(init.durable, instance));
                        initThread = Threads.daemon("rookery-init", () -> initialize(init));
                        initThread.start();
                    }
                }
            }
        }
        if (answer != null) {
            connection.send(answer);
        }
    }

    private void initialize(Init init) {
        InitOk timing = new InitOk();
        Failure why = null;
        Code loaded = null;
        try {
            long started = System.nanoTime();
            loaded = load(init);
            long ready = System.nanoTime();
            runInitializer(init, loaded);
            if (facts.durable != null) {
                facts.durable.begin();
            }
            timing.loadMicros = (ready - started) / 1000;
            timing.initMicros = (System.nanoTime() - ready) / 1000;
        } catch (Failure known) {
            Log.line(known.getMessage());
            why = known;
        }
        byte[] answer = why == null ? Protocol.frame(Protocol.INIT_OK, 0, timing) : Protocol.error(0, why);
        boolean stopping;
        List<Connection> told;
        synchronized (instance.lock) {
            initAnswer = answer;
            failure = why;
            stopping = isStopping();
            if (!stopping) {
                state = why == null ? State.READY : State.FAILED;
            }
            if (why == null) {
                code = loaded;
                instance.open(new Executor(loaded.program, facts.durable), init.concurrency);
            }
            told = new ArrayList<>(waiting);
            waiting.clear();
        }
        for (Connection connection : told) {
            connection.send(answer);
        }
        if (!stopping && why == null) {
            instance.startQueued();
        } else if (!stopping) {
            instance.cancelAll(why);
        }
        synchronized (instance.lock) {
            initEnded = true;
            instance.lock.notifyAll();
        }
    }

    private Code load(Init init) throws Failure {
        if (init.handler == null || init.handler.isEmpty()) {
            throw new Failure(Protocol.CODE_INITIALIZER, "empty user call code");
        }
        if (facts.durable != null) {
            facts.durable.check();
        }
        try {
            return bounded(init.initTimeoutMs, null, () -> Code.load(init, facts));
        } catch (TimeoutException late) {
            throw new Failure(Protocol.CODE_LOAD, "cannot load the handler " + init.handler
                    + ": it did not load within " + seconds(init.initTimeoutMs));
        } catch (Failure known) {
            throw known;
        } catch (Throwable error) { // a fault of the runtime: the loader converts all other errors
            Log.thrown("cannot load the handler " + init.handler, error);
            throw new Failure(Protocol.CODE_LOAD,
                    "cannot load the handler " + init.handler + ": " + Log.textOf(error));
        }
    }

    private void runInitializer(Init init, Code loaded) throws Failure {
        if (loaded.initializer == null) {
            return;
        }
        try {
            Long end = init.initTimeoutMs > 0 ? endAfter(init.initTimeoutMs) : null;
            bounded(init.initTimeoutMs, loaded.program.loader(),
                    () -> loaded.runHook(loaded.initializer, new CallContext(facts, null, end)));
        } catch (TimeoutException late) {
            throw new Failure(Protocol.CODE_INITIALIZER_TIMEOUT,
                    "initializer timed out after " + seconds(init.initTimeoutMs));
        } catch (Throwable error) {
            Log.thrown("initializer failed", error);
            throw new Failure(Protocol.CODE_INITIALIZER, "initializer failed: " + Log.textOf(error));
        }
    }

    /**
     * Runs user code in a separate thread, which is interrupted at the time limit, or when the current thread
     * is.
     *
     * @throws TimeoutException when the code has not ended in time; a limit of 0 means none
     */
    private static <T> T bounded(long timeoutMs, ClassLoader loader, Step<T> step) throws Throwable {
        FutureTask<T> task = new FutureTask<>(step);
        Thread thread = Threads.daemon("rookery-hook", task);
        if (loader != null) {
            thread.setContextClassLoader(loader);
        }
        thread.start();
        try {
            return timeoutMs > 0 ? task.get(timeoutMs, TimeUnit.MILLISECONDS) : task.get();
        } catch (ExecutionException error) {
            throw error.getCause();
        } catch (TimeoutException | InterruptedException end) {
            thread.interrupt();
            throw end;
        }
    }

    // STOP.

    /**
     * Stops the instance within its grace; has an effect once. `connection` then gets STOPPED; null: no
     * connection does.
     */
    void stop(Connection connection, long graceMs) {
        State before;
        synchronized (instance.lock) {
            if (connection != null) {
                stoppers.add(connection);
            }
            before = state;
            state = State.STOPPING;
            instance.decideReading();
        }
        if (before != State.STOPPING) {
            Threads.daemon("rookery-stop", () -> end(windUp(before, graceMs))).start();
        }
    }

    /** Ends all calls and runs pre_stop. Returns the failure, or null if everything ended well. */
    private Failure windUp(State before, long graceMs) {
        long until = endAfter(Math.max(graceMs, LEAST_GRACE_MS));
        instance.cancelAll(Failure.STOPPING);
        try {
            synchronized (instance.lock) {
                if (!initEnded) {
                    initThread.interrupt();
                }
                while (!initEnded) {
                    long leftMs = (until - System.nanoTime()) / 1_000_000;
                    if (leftMs <= 0) {
                        return late("stopping the initializer", graceMs);
                    }
                    instance.lock.wait(leftMs);
                }
                if (!instance.awaitIdle(until)) {
                    return late("stopping the running calls", graceMs);
                }
            }
            if (before != State.READY || code.preStop == null) {
                return null;
            }
            if (code.preStopFailure != null) {
                throw code.preStopFailure;
            }
            long leftMs = Math.max(1, (until - System.nanoTime()) / 1_000_000);
            bounded(leftMs, code.program.loader(),
                    () -> code.runHook(code.preStop, new CallContext(facts, null, until)));
            return null;
        } catch (TimeoutException late) {
            return late("pre_stop", graceMs);
        } catch (Throwable error) {
            Log.thrown("pre_stop failed", error);
            String why = error instanceof Failure ? error.getMessage() : Log.textOf(error);
            return new Failure(Protocol.CODE_PRE_STOP, "pre_stop failed: " + why);
        }
    }

    private static Failure late(String what, long graceMs) {
        String message = what + " timed out after " + seconds(graceMs);
        Log.line("rookery: " + message);
        return new Failure(Protocol.CODE_PRE_STOP, message);
    }

    /** Sends STOPPED and ends the process with exit code 0. */
    private void end(Failure why) {
        Stopped stopped = new Stopped();
        stopped.error = why == null ? null : why.toMessage();
        List<Connection> told;
        synchronized (instance.lock) {
            told = new ArrayList<>(stoppers);
        }
        for (Connection connection : told) {
            connection.send(Protocol.frame(Protocol.STOPPED, 0, stopped));
        }
        Threads.daemon("rookery-exit", () -> System.exit(0)).start();
        try {
            Thread.sleep(EXIT_MS);
        } catch (InterruptedException now) {
            // Halts immediately.
        }
        Runtime.getRuntime().halt(0);
    }

    private static long endAfter(long ms) {
        return System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
    }

    private static String seconds(long ms) {
        return (ms % 1000 == 0 ? Long.toString(ms / 1000) : Double.toString(ms / 1000.0)) + " s";
    }
}
