package dev.rookery.runtime;

import dev.rookery.Span;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The spans of one call. */
final class Spans {
    // Limits of one call. They are those of callSpans in src/core/limits.ts.
    private static final int MAX_SPANS = 128;
    private static final int MAX_NAME_CHARS = 128;
    private static final int MAX_ATTRIBUTES = 16;
    private static final int MAX_KEY_CHARS = 64;
    private static final int MAX_VALUE_CHARS = 256;
    private static final int MAX_CHARS = 32_768;
    /** Characters that a span costs in addition to its texts. */
    private static final int SPAN_CHARS = 32;

    /** The innermost open span of each thread. */
    private static final ThreadLocal<CallSpan> CURRENT = new ThreadLocal<>();

    /** Does nothing. */
    static final Span NONE = new Span() {
        @Override
        public Span set(String name, Object value) {
            return this;
        }

        @Override
        public Span fail(Throwable error) {
            return this;
        }

        @Override
        public void close() {
        }
    };

    private final List<Protocol.Span> records = new ArrayList<>();
    private final List<CallSpan> spans = new ArrayList<>();
    private int leftChars = MAX_CHARS;
    private int dropped;

    /** Returns a span that starts now, inside of the innermost open span of this thread. */
    Span start(String name) {
        String text = cut(String.valueOf(name), MAX_NAME_CHARS);
        CallSpan outer = CURRENT.get();
        CallSpan span;
        synchronized (this) {
            int chars = text.length() + SPAN_CHARS;
            if (records.size() >= MAX_SPANS || chars > leftChars) {
                dropped++;
                return NONE;
            }
            leftChars -= chars;
            Protocol.Span record = new Protocol.Span();
            record.name = text;
            record.parent = outer != null && outer.owner() == this ? outer.index : null;
            span = new CallSpan(records.size(), outer, record);
            records.add(record);
            spans.add(span);
        }
        CURRENT.set(span);
        return span;
    }

    /** Returns the SPANS frame. The handler began at this {@link System#nanoTime}. Open spans end now. */
    synchronized byte[] frame(int callId, long began) {
        CURRENT.remove();
        long now = System.nanoTime();
        Protocol.SpansMessage message = new Protocol.SpansMessage();
        for (CallSpan span : spans) {
            span.record.startMicros = Math.max(0, (span.started - began) / 1000);
            span.record.micros = ((span.ended == null ? now : span.ended) - span.started) / 1000;
        }
        message.spans = records;
        message.dropped = dropped;
        return Protocol.frame(Protocol.SPANS, callId, message);
    }

    private static String cut(String text, int chars) {
        return text.length() <= chars ? text : text.substring(0, chars);
    }

    /** Returns a text, a Boolean or a number that JSON can express. */
    private static Object plain(Object value) {
        boolean isPlain = value instanceof Boolean || value instanceof Integer || value instanceof Short
                || value instanceof Byte || value instanceof Long && Math.abs((Long) value) < 1L << 53
                || value instanceof Double && Math.abs((Double) value) <= Double.MAX_VALUE;
        if (isPlain) {
            return value;
        }
        try {
            return cut(String.valueOf(value), MAX_VALUE_CHARS);
        } catch (RuntimeException broken) {
            return "<" + broken.getClass().getSimpleName() + ">";
        }
    }

    private final class CallSpan implements Span {
        private final int index;
        private final CallSpan outer;
        private final Protocol.Span record;
        private final long started = System.nanoTime();
        /** The end; null while the span is open. */
        private Long ended;

        CallSpan(int index, CallSpan outer, Protocol.Span record) {
            this.index = index;
            this.outer = outer;
            this.record = record;
        }

        private Spans owner() {
            return Spans.this;
        }

        @Override
        public Span set(String name, Object value) {
            if (value == null) {
                return this;
            }
            Object shown = plain(value);
            synchronized (Spans.this) {
                Map<String, Object> attributes = record.attributes == null ? new LinkedHashMap<>() : record.attributes;
                Object known = attributes.get(name);
                int chars = shown.toString().length() + (known == null ? name.length() : -known.toString().length());
                boolean isFull = known == null && attributes.size() >= MAX_ATTRIBUTES;
                if (name.length() > MAX_KEY_CHARS || isFull || chars > leftChars) {
                    dropped++;
                    return this;
                }
                leftChars -= chars;
                attributes.put(name, shown);
                record.attributes = attributes;
            }
            return this;
        }

        @Override
        public Span fail(Throwable error) {
            String text = cut(Log.textOf(error), MAX_VALUE_CHARS);
            synchronized (Spans.this) {
                record.error = text;
            }
            return this;
        }

        @Override
        public void close() {
            synchronized (Spans.this) {
                if (ended == null) {
                    ended = System.nanoTime();
                }
            }
            if (CURRENT.get() == this) {
                CURRENT.set(outer);
            }
        }
    }
}
