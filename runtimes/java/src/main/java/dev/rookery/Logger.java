package dev.rookery;

/** Writes lines to the instance's log (stderr). */
public interface Logger {
    void debug(String message);

    void info(String message);

    void warn(String message);

    void error(String message);

    /** Writes the message, then the stack trace. */
    void error(String message, Throwable cause);
}
