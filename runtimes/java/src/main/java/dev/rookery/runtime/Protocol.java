package dev.rookery.runtime;

import com.google.gson.annotations.SerializedName;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/** Wire format of the runtime protocol, version 1. Specified in docs/reference/runtime-protocol.md. */
final class Protocol {
    static final int VERSION = 1;

    static final int HELLO = 1;
    static final int HELLO_OK = 2;
    static final int INIT = 3;
    static final int INIT_OK = 4;
    static final int CALL = 5;
    static final int RESULT = 6;
    static final int CHUNK = 7;
    static final int ERROR = 8;
    static final int CANCEL = 9;
    static final int CREDIT = 10;
    static final int PING = 11;
    static final int PONG = 12;
    static final int STOP = 13;
    static final int STOPPED = 14;
    static final int SAVE = 15;
    static final int SAVED = 16;
    static final int SPANS = 17;
    static final int KEEP_AWAKE = 18;
    static final int ALARMS = 19;
    static final int ALARM_LIST = 20;

    /** Size of the type and the call id, which a frame's length includes. */
    static final int FRAME_OVERHEAD = 5;
    static final int HEADER_BYTES = 4 + FRAME_OVERHEAD;
    static final int MAX_FRAME_BYTES = 7 * 1024 * 1024;
    private static final int RESULT_OFFSET = HEADER_BYTES + 4;

    static final int CODE_PROTOCOL = 4000;
    static final int CODE_LOAD = 4001;
    static final int CODE_HANDLER = 4002;
    static final int CODE_TOO_LARGE = 4004;
    static final int CODE_NOT_JSON = 4007;
    static final int CODE_PRE_STOP = 4009;
    static final int CODE_TIMEOUT = 4010;
    static final int CODE_INITIALIZER = 4201;
    static final int CODE_INITIALIZER_TIMEOUT = 4211;

    /** Limit for the text of an ERROR, since an exception's own text may have any length. */
    private static final int MAX_MESSAGE_CHARS = 64 * 1024;

    static final class Hello {
        int version;
        String secret;
        String client;
        String role;
        /** 1: the client accepts SPANS. */
        int spans;
    }

    static final class SpansMessage {
        List<Span> spans;
        int dropped;
    }

    static final class Span {
        String name;
        Integer parent;
        long startMicros;
        long micros;
        Map<String, Object> attributes;
        String error;
    }

    static final class HelloOk {
        final int version = VERSION;
        String runtime;
        String sdk;
        String state;
        /** 1: the runtime accepts durable in INIT. */
        final int durable = 1;
        /** Present for a durable agent after INIT. */
        Long stateVersion;
        Integer keepAwakeSeconds;
        ErrorMessage error;
    }

    static final class Init {
        String codePath = "";
        String handler = "";
        String initializer = "";
        String preStop = "";
        long initTimeoutMs;
        int concurrency;
        int maxResultBytes;
        String instanceId = "";
        String tenant = "";
        String namespace = "";
        String name = "";
        String functionName = "";
        String version = "";
        int memoryMb;
        int cpuMillis;
        /** null for an agent that is not durable. */
        InitDurable durable;
    }

    /** The saved state with which a durable agent starts. */
    static final class InitDurable {
        /** The JSON of the state; null: none was saved. */
        String state;
        long version;
        int maxStateBytes;
        boolean listsAlarms;
        Wake wake;
        Entries entries = new Entries();
    }

    /** The functions of a durable agent that run instead of its handler. */
    static final class Entries {
        String alarm = "";
        String sleep = "";
    }

    static final class Wake implements dev.rookery.Wake {
        String reason = "created";
        int count;
        @SerializedName("slept_at")
        String sleptAt;
        @SerializedName("saved_at")
        String savedAt;
        @SerializedName("state_version")
        long stateVersion;

        @Override
        public String getReason() {
            return reason;
        }

        @Override
        public int getCount() {
            return count;
        }

        @Override
        public Instant getSleptAt() {
            return sleptAt == null ? null : Instant.parse(sleptAt);
        }

        @Override
        public Instant getSavedAt() {
            return savedAt == null ? null : Instant.parse(savedAt);
        }

        @Override
        public long getStateVersion() {
            return stateVersion;
        }
    }

    static final class AlarmList {
        List<Map<String, Object>> alarms;
        String error;
    }

    static final class InitOk {
        long loadMicros;
        long initMicros;
    }

    static final class CallHeader {
        String traceId = "";
        String traceparent = "";
        String requestId = "";
        double remainingMs;
        String sessionId = "";
        String entry = "";
        boolean stream;
        long credit;
        Map<String, String> headers;
    }

    static final class Cancel {
        String reason;
    }

    static final class Pong {
        int running;
        int queued;
    }

    static final class Stop {
        double graceMs = -1;
    }

    static final class Stopped {
        ErrorMessage error;
    }

    static final class ErrorMessage {
        int code;
        String message;
        Long runMicros;
    }

    private Protocol() {
    }

    static byte[] frame(int kind, int callId, byte[] payload) {
        byte[] frame = new byte[HEADER_BYTES + payload.length];
        System.arraycopy(payload, 0, frame, HEADER_BYTES, payload.length);
        putHeader(frame, kind, callId);
        return frame;
    }

    /** Returns the frame of a message type above. */
    static byte[] frame(int kind, int callId, Object message) {
        return frame(kind, callId, Json.MESSAGES.toJson(message).getBytes(StandardCharsets.UTF_8));
    }

    static byte[] error(int callId, Failure failure) {
        return error(callId, failure, null);
    }

    static byte[] error(int callId, Failure failure, Long runMicros) {
        ErrorMessage message = failure.toMessage();
        message.runMicros = runMicros;
        if (message.message.length() > MAX_MESSAGE_CHARS) {
            message.message = message.message.substring(0, MAX_MESSAGE_CHARS) + "...";
        }
        return frame(ERROR, callId, message);
    }

    static byte[] result(int callId, byte[] value, long runMicros) {
        byte[] frame = new byte[RESULT_OFFSET + value.length];
        System.arraycopy(value, 0, frame, RESULT_OFFSET, value.length);
        putHeader(frame, RESULT, callId);
        putInt(frame, HEADER_BYTES, (int) Math.min(runMicros, 0xffff_ffffL));
        return frame;
    }

    static void putHeader(byte[] frame, int kind, int callId) {
        putInt(frame, 0, frame.length - 4);
        frame[4] = (byte) kind;
        putInt(frame, 5, callId);
    }

    static void putInt(byte[] bytes, int offset, int value) {
        bytes[offset] = (byte) (value >>> 24);
        bytes[offset + 1] = (byte) (value >>> 16);
        bytes[offset + 2] = (byte) (value >>> 8);
        bytes[offset + 3] = (byte) value;
    }

    static int getInt(byte[] bytes, int offset) {
        return bytes[offset] << 24
                | (bytes[offset + 1] & 0xff) << 16
                | (bytes[offset + 2] & 0xff) << 8
                | (bytes[offset + 3] & 0xff);
    }

    /** Returns the JSON object of a frame's payload. */
    static <T> T read(byte[] payload, String what, Class<T> type) throws ProtocolException {
        T message;
        try {
            message = Json.MESSAGES.fromJson(new String(payload, StandardCharsets.UTF_8), type);
        } catch (RuntimeException | StackOverflowError error) {
            throw new ProtocolException(what + " is not as the protocol has it: " + error.getMessage());
        }
        if (message == null) {
            throw new ProtocolException(what + " must be a JSON object");
        }
        return message;
    }
}
