package dev.rookery;

/** Writes lines to the instance's log (stderr). */
public interface Logger {
    /** Writes a line of the level debug. */
    void debug(String message);

    /** Writes a line of the level info. */
    void info(String message);

    /** Writes a line of the level warning. */
    void warn(String message);

    /** Writes a line of the level error. */
    void error(String message);

    /** Writes the message, then the stack trace. */
    void error(String message, Throwable cause);
}
