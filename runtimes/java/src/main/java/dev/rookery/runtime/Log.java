package dev.rookery.runtime;

import dev.rookery.Logger;
import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UnsupportedEncodingException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;

/** The instance's log: its stdout and stderr. */
final class Log {
    private static final int BUFFER_BYTES = 8192;
    private static final String OURS = "dev.rookery.runtime.";

    private Log() {
    }

    /** Makes stdout and stderr line-buffered UTF-8 streams, whatever the locale is. */
    static void open() {
        System.setOut(utf8(FileDescriptor.out));
        System.setErr(utf8(FileDescriptor.err));
    }

    private static PrintStream utf8(FileDescriptor descriptor) {
        try {
            return new PrintStream(
                    new BufferedOutputStream(new FileOutputStream(descriptor), BUFFER_BYTES), true, "UTF-8");
        } catch (UnsupportedEncodingException impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** Writes one message of the runtime. Never fails. */
    static void line(String text) {
        try {
            System.err.println(text);
        } catch (Throwable broken) {
            // The user's code has replaced stderr, or there is too little memory.
        }
    }

    /** Writes an exception of user code in one piece, without frames of the runtime. Never fails. */
    static void thrown(String title, Throwable error) {
        try {
            line(traceOf(title, error));
        } catch (Throwable broken) { // too little memory for a long text
            line(title);
        }
    }

    private static String traceOf(String title, Throwable error) {
        StringWriter text = new StringWriter();
        text.write(title);
        text.write('\n');
        try {
            trim(error, Collections.newSetFromMap(new IdentityHashMap<>()));
            error.printStackTrace(new PrintWriter(text, true));
        } catch (Throwable broken) { // methods of the exception are user code
            text.write(error.getClass().getName() + " (no stack trace: " + broken.getClass().getName() + ")");
        }
        return text.toString().trim();
    }

    /**
     * Returns a text such as {@code java.lang.IllegalStateException: boom}, even if the exception's own code
     * fails.
     */
    static String textOf(Throwable error) {
        try {
            return String.valueOf(error);
        } catch (Throwable broken) {
            return error.getClass().getName();
        }
    }

    /** Removes the frames from the first one of the runtime on, and the reflection that called user code. */
    private static void trim(Throwable error, Set<Throwable> seen) {
        if (error == null || !seen.add(error)) {
            return;
        }
        List<StackTraceElement> kept = new ArrayList<>();
        for (StackTraceElement element : error.getStackTrace()) {
            String name = element.getClassName();
            if (name.startsWith(OURS)) {
                break;
            }
            kept.add(element);
        }
        while (!kept.isEmpty() && isReflection(kept.get(kept.size() - 1).getClassName())) {
            kept.remove(kept.size() - 1);
        }
        error.setStackTrace(kept.toArray(new StackTraceElement[0]));
        trim(error.getCause(), seen);
        for (Throwable suppressed : error.getSuppressed()) {
            trim(suppressed, seen);
        }
    }

    private static boolean isReflection(String className) {
        return className.startsWith("java.lang.reflect.")
                || className.startsWith("sun.reflect.")
                || className.startsWith("jdk.internal.reflect.")
                || className.startsWith("java.lang.invoke.");
    }

    /** Returns the logger of a call. */
    static Logger withTrace(String traceId) {
        return new CallLogger(traceId.isEmpty() ? "-" : traceId);
    }

    private static final class CallLogger implements Logger {
        private final String traceId;

        CallLogger(String traceId) {
            this.traceId = traceId;
        }

        @Override
        public void debug(String message) {
            write("DEBUG", message);
        }

        @Override
        public void info(String message) {
            write("INFO", message);
        }

        @Override
        public void warn(String message) {
            write("WARNING", message);
        }

        @Override
        public void error(String message) {
            write("ERROR", message);
        }

        @Override
        public void error(String message, Throwable cause) {
            StringWriter trace = new StringWriter();
            cause.printStackTrace(new PrintWriter(trace, true));
            write("ERROR", message + "\n" + trace.toString().trim());
        }

        private void write(String level, String message) {
            line(Instant.now() + " " + level + " [" + traceId + "] " + message);
        }
    }
}
