package dev.rookery.runtime;

import java.io.ByteArrayOutputStream;
import java.util.Iterator;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.BaseStream;

/** Runs one call in the current thread, from the event to its outcome. */
final class Executor {
    private static final byte[] NULL = {'n', 'u', 'l', 'l'};

    /** The outcome of a call: a value as JSON, or a failure. */
    static final class Outcome {
        final byte[] value;
        final Failure failure;
        final long micros;
        /** The SPANS frame; null: the call has none. */
        final byte[] spans;

        Outcome(byte[] value, Failure failure, long micros, byte[] spans) {
            this.value = value;
            this.failure = failure;
            this.micros = micros;
            this.spans = spans;
        }
    }

    private final Program program;
    /** The state of a durable agent; null for another. */
    private final Durable durable;

    Executor(Program program, Durable durable) {
        this.program = program;
        this.durable = durable;
    }

    /**
     * Returns the SAVE of a call whose code has ended; null: it has changed no state. Undoes the changes of a
     * call that failed, and fails if the changes cannot be saved.
     */
    byte[] saveOf(Call call, boolean hasFailed) throws Failure {
        try {
            return durable == null ? null : durable.settle(call, hasFailed);
        } catch (RuntimeException | Error fault) { // too little memory
            Log.thrown("rookery: the state cannot be saved", fault);
            throw Failure.ofHandler("the state cannot be saved");
        }
    }

    Outcome run(Call call) {
        Thread.currentThread().setContextClassLoader(program.loader());
        long started = System.nanoTime();
        byte[] value = null;
        Failure failure = null;
        try {
            call.enter();
            value = execute(call);
        } catch (Failure known) {
            failure = known;
        } catch (StateException known) {
            failure = known.failure;
            log(call, known);
        } catch (Throwable error) {
            failure = failureOf(error);
            log(call, error);
        } finally {
            call.leave();
        }
        long micros = (System.nanoTime() - started) / 1000;
        CallStream stream = call.openedStream();
        if (stream != null) {
            stream.finish();
        }
        return new Outcome(value, failure, micros, call.spansFrame(started));
    }

    private static Failure failureOf(Throwable error) {
        try {
            return Failure.ofHandler(Log.textOf(error));
        } catch (Throwable broken) { // too little memory for a long text
            return Failure.ofHandler(error.getClass().getName());
        }
    }

    private byte[] execute(Call call) throws Throwable {
        Object value = program.handle(call);
        if (value instanceof Future) {
            value = await((Future<?>) value);
        }
        if (value instanceof BaseStream) {
            try (BaseStream<?, ?> values = (BaseStream<?, ?>) value) {
                return sequence(call, values.iterator());
            }
        }
        if (value instanceof Iterator) {
            return sequence(call, (Iterator<?>) value);
        }
        byte[] json = Json.bytes(value);
        if (json.length > program.maxResultBytes()) {
            throw Failure.tooLarge(json.length, program.maxResultBytes());
        }
        return json;
    }

    private static Object await(Future<?> future) throws Throwable {
        try {
            return future.get();
        } catch (InterruptedException cancelled) {
            future.cancel(true);
            throw cancelled;
        } catch (ExecutionException error) {
            throw error.getCause();
        }
    }

    /** Sends values to the stream if the caller asked for one, otherwise collects them in an array. */
    private byte[] sequence(Call call, Iterator<?> values) throws Failure {
        CallStream stream = call.stream();
        if (stream != null) {
            while (values.hasNext()) {
                stream.write(values.next());
            }
            return NULL;
        }
        ByteArrayOutputStream array = new ByteArrayOutputStream();
        array.write('[');
        while (values.hasNext()) {
            byte[] item = Json.bytes(values.next());
            if (array.size() > 1) {
                array.write(',');
            }
            array.write(item, 0, item.length);
            if (array.size() + 1 > program.maxResultBytes()) {
                throw Failure.tooLarge(array.size() + 1, program.maxResultBytes());
            }
        }
        array.write(']');
        return array.toByteArray();
    }

    /** Logs a failed call. Skips the InterruptedException of a cancelled call, which contains nothing new. */
    private static void log(Call call, Throwable error) {
        if (call.reason() != null && error instanceof InterruptedException) {
            return;
        }
        String trace = call.header().traceId;
        Log.thrown("call failed, trace id " + (trace == null || trace.isEmpty() ? "-" : trace), error);
    }
}
