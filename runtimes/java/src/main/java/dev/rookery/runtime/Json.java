package dev.rookery.runtime;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonIOException;
import com.google.gson.Strictness;
import com.google.gson.reflect.TypeToken;
import com.google.gson.stream.JsonReader;
import java.io.IOException;
import java.io.StringReader;
import java.lang.reflect.Type;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** Converts to and from JSON: the protocol's messages, and users' events and values. */
final class Json {
    /** Converter for the protocol's own messages. */
    static final Gson MESSAGES = new Gson();

    private static final Gson VALUES = new GsonBuilder()
            .serializeNulls()
            .disableHtmlEscaping()
            .setObjectToNumberStrategy(Json::number)
            .setDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
            .registerTypeAdapterFactory(new JavaTime())
            .create();

    /** Type into which an event is read when the handler takes a raw Map. */
    private static final Type OBJECT_MAP = new TypeToken<Map<String, Object>>() { }.getType();

    private static final int MAX_LEVELS = 500;

    private Json() {
    }

    /** Returns a number of a Map: a Long, a BigInteger if it is too large for a Long, or a Double. */
    private static Number number(JsonReader reader) throws IOException {
        String text = reader.nextString();
        if (text.indexOf('.') >= 0 || text.indexOf('e') >= 0 || text.indexOf('E') >= 0) {
            return Double.valueOf(text);
        }
        try {
            return Long.valueOf(text);
        } catch (NumberFormatException tooLarge) {
            return new BigInteger(text);
        }
    }

    /** Returns the event as the type of the handler's parameter. A String gets the JSON text itself. */
    static Object event(byte[] event, Type type) {
        String text = new String(event, StandardCharsets.UTF_8);
        if (type == String.class) {
            return text;
        }
        Type read = type == Map.class ? OBJECT_MAP : type;
        LongNumbers numbers = LongNumbers.in(text);
        return numbers == null
                ? VALUES.fromJson(reader(text), read)
                : VALUES.fromJson(numbers.read(Json::reader), read);
    }

    private static JsonReader reader(String text) {
        JsonReader reader = VALUES.newJsonReader(new StringReader(text));
        // The service has checked the event against the protocol's limit.
        reader.setNestingLimit(MAX_LEVELS);
        // Without this Gson reads a number of more than 1024 digits as a text.
        reader.setStrictness(Strictness.STRICT);
        return reader;
    }

    /** Returns the value as JSON. Fails with 4007. */
    static byte[] bytes(Object value) throws Failure {
        return bytes(value, "the returned value");
    }

    /** Returns the value as JSON. Fails with 4007, with a text that begins with `what`. */
    static byte[] bytes(Object value, String what) throws Failure {
        String text;
        try {
            text = VALUES.toJson(value);
        } catch (JsonIOException | IllegalArgumentException | UnsupportedOperationException error) {
            throw Failure.notJson(what, typeOf(value) + ": " + error.getMessage() + JsonPlace.of(value, Json::isRefused));
        } catch (StackOverflowError error) {
            throw Failure.notJson(what, typeOf(value) + ": it is nested too deeply or contains itself");
        }
        if (value != null && text.equals("null") && value.getClass().isAnonymousClass()) {
            throw Failure.notJson(what, typeOf(value) + " is an anonymous class, which has no JSON form");
        }
        return utf8(text);
    }

    private static boolean isRefused(Object value) {
        try {
            VALUES.toJson(value);
            return false;
        } catch (JsonIOException | IllegalArgumentException | UnsupportedOperationException error) {
            return true;
        }
    }

    /**
     * Encodes as UTF-8. Half of a surrogate pair is escaped, since it has no UTF-8 form. It occurs in texts
     * only.
     */
    private static byte[] utf8(String json) {
        StringBuilder escaped = null;
        int from = 0;
        int length = json.length();
        for (int at = 0; at < length; at++) {
            char half = json.charAt(at);
            if (!Character.isSurrogate(half)) {
                continue;
            }
            if (Character.isHighSurrogate(half) && at + 1 < length && Character.isLowSurrogate(json.charAt(at + 1))) {
                at++;
                continue;
            }
            escaped = escaped == null ? new StringBuilder(length + 8) : escaped;
            escaped.append(json, from, at).append("\\u").append(Integer.toHexString(half));
            from = at + 1;
        }
        String text = escaped == null ? json : escaped.append(json, from, length).toString();
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String typeOf(Object value) {
        return value == null ? "null" : value.getClass().getName();
    }
}
