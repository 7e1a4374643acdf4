package dev.rookery.runtime;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonIOException;
import com.google.gson.ToNumberPolicy;
import com.google.gson.reflect.TypeToken;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** JSON in and out: the protocol's messages, and users' events and values. */
final class Json {
    /** For the protocol's own messages. */
    static final Gson MESSAGES = new Gson();

    private static final Gson VALUES = new GsonBuilder()
            .serializeNulls()
            .disableHtmlEscaping()
            .setObjectToNumberStrategy(ToNumberPolicy.LONG_OR_DOUBLE)
            .setDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
            .registerTypeAdapterFactory(new JavaTime())
            .create();

    /** What an event is read into when the handler asks for a plain Map or Object. */
    private static final Type OBJECT_MAP = new TypeToken<Map<String, Object>>() { }.getType();

    private Json() {
    }

    /** The event as the type of the handler's parameter. */
    static Object event(byte[] event, Type type) {
        String text = new String(event, StandardCharsets.UTF_8);
        if (type == String.class) {
            return text;
        }
        return VALUES.fromJson(text, type == Map.class ? OBJECT_MAP : type);
    }

    /** The value as JSON. */
    static byte[] bytes(Object value) throws Failure {
        String text;
        try {
            text = VALUES.toJson(value);
        } catch (JsonIOException | IllegalArgumentException | UnsupportedOperationException error) {
            throw Failure.notJson(typeOf(value) + ": " + error.getMessage());
        } catch (StackOverflowError error) {
            throw Failure.notJson(typeOf(value) + ": it is nested too deeply or contains itself");
        }
        if (value != null && text.equals("null") && value.getClass().isAnonymousClass()) {
            throw Failure.notJson(typeOf(value) + " is an anonymous class, which has no JSON form");
        }
        return utf8(text);
    }

    /** Half of a surrogate pair is no character, and JSON can only say it escaped. It is in a text, where that may stand. */
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
