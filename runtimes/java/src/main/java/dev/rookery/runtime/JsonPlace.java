package dev.rookery.runtime;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Predicate;
import java.util.regex.Pattern;

/** Finds the first part of a value that JSON cannot express. */
final class JsonPlace {
    private static final int MAX_STEPS = 100;
    private static final int MAX_PATH_CHARS = 300;
    private static final int MAX_NAME_CHARS = 64;
    private static final Pattern PLAIN = Pattern.compile("[A-Za-z_$][A-Za-z0-9_$]{0,63}");

    private JsonPlace() {
    }

    /**
     * Returns the path of that part, such as {@code , at $.rows[3].when}; empty when it is the value itself.
     */
    static String of(Object value, Predicate<Object> isRefused) {
        StringBuilder path = new StringBuilder();
        Object at = value;
        try {
            for (int step = 0; step < MAX_STEPS && path.length() <= MAX_PATH_CHARS; step++) {
                Object refused = null;
                for (Map.Entry<String, Object> part : partsOf(at).entrySet()) {
                    if (part.getValue() != null && isRefused.test(part.getValue())) {
                        path.append(part.getKey());
                        refused = part.getValue();
                        break;
                    }
                }
                if (refused == null) {
                    break;
                }
                at = refused;
            }
        } catch (RuntimeException codeOfTheUser) {
            // The user's code has thrown. The path so far is returned.
        }
        return path.length() == 0 ? "" : ", at $" + path;
    }

    private static Map<String, Object> partsOf(Object value) {
        Map<String, Object> parts = new LinkedHashMap<>();
        if (value instanceof Map) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                parts.put(keyText(String.valueOf(entry.getKey())), entry.getValue());
            }
        } else if (value instanceof Iterable) {
            int index = 0;
            for (Object item : (Iterable<?>) value) {
                parts.put("[" + index++ + "]", item);
            }
        } else if (value.getClass().isArray()) {
            for (int index = 0; index < Array.getLength(value); index++) {
                parts.put("[" + index + "]", Array.get(value, index));
            }
        } else if (!value.getClass().getName().startsWith("java.")) {
            for (Class<?> type = value.getClass(); type != null && type != Object.class; type = type.getSuperclass()) {
                addFields(parts, value, type);
            }
        }
        return parts;
    }

    private static void addFields(Map<String, Object> parts, Object value, Class<?> type) {
        for (Field field : type.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) || Modifier.isTransient(field.getModifiers())) {
                continue;
            }
            try {
                field.setAccessible(true);
                parts.put(keyText(field.getName()), field.get(value));
            } catch (IllegalAccessException | RuntimeException closed) {
                // Gson cannot read this field either.
            }
        }
    }

    private static String keyText(String name) {
        if (PLAIN.matcher(name).matches()) {
            return "." + name;
        }
        return "[" + Json.MESSAGES.toJson(name.substring(0, Math.min(MAX_NAME_CHARS, name.length()))) + "]";
    }
}
