package dev.rookery.runtime;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import com.google.gson.internal.LazilyParsedNumber;
import com.google.gson.stream.JsonReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * Reads numbers with more digits than the 1024 that Gson accepts. The service accepts 4300.
 *
 * <p>Replaces them by short numbers in the text, and restores them in the tree that Gson makes of the text.
 */
final class LongNumbers {
    /** Length up to which Gson certainly reads a number. */
    private static final int MAX_CHARS = 1000;

    private final String text;
    private final String mark;
    private final List<String> numbers = new ArrayList<>();

    private LongNumbers(String text) {
        this.text = text;
        String free = "1E-7";
        while (text.contains(free)) {
            free += "7";
        }
        mark = free;
    }

    /**
     * Returns null if there are no long numbers. Inspects every 1000th character, and the surroundings of
     * those that may belong to a number.
     */
    static LongNumbers in(String text) {
        for (int at = MAX_CHARS; at < text.length(); at += MAX_CHARS) {
            if (!isOfNumber(text.charAt(at))) {
                continue;
            }
            int from = at;
            int to = at;
            while (from > 0 && at - from <= MAX_CHARS && isOfNumber(text.charAt(from - 1))) {
                from--;
            }
            while (to < text.length() && to - at <= MAX_CHARS && isOfNumber(text.charAt(to))) {
                to++;
            }
            if (to - from > MAX_CHARS) {
                return new LongNumbers(text);
            }
        }
        return null;
    }

    /** Returns the JSON as a tree, read with a reader of the shortened text. */
    JsonElement read(Function<String, JsonReader> readerOf) {
        String shorter = shortened();
        JsonElement tree = JsonParser.parseReader(readerOf.apply(shorter));
        return withNumbers(tree);
    }

    private String shortened() {
        StringBuilder out = new StringBuilder(text.length());
        int at = 0;
        while (at < text.length()) {
            int from = at;
            char first = text.charAt(at++);
            if (first == '"') {
                while (text.charAt(at) != '"') {
                    at += text.charAt(at) == '\\' ? 2 : 1;
                }
                at++;
            } else if (first == '-' || first >= '0' && first <= '9') {
                while (at < text.length() && isOfNumber(text.charAt(at))) {
                    at++;
                }
            }
            if (first != '"' && at - from > MAX_CHARS) {
                out.append(mark).append('0').append(numbers.size());
                numbers.add(text.substring(from, at));
            } else {
                out.append(text, from, at);
            }
        }
        return out.toString();
    }

    private JsonElement withNumbers(JsonElement element) {
        if (element.isJsonObject()) {
            JsonObject object = element.getAsJsonObject();
            for (Map.Entry<String, JsonElement> member : object.entrySet()) {
                member.setValue(withNumbers(member.getValue()));
            }
        } else if (element.isJsonArray()) {
            JsonArray array = element.getAsJsonArray();
            for (int index = 0; index < array.size(); index++) {
                array.set(index, withNumbers(array.get(index)));
            }
        } else if (element.isJsonPrimitive() && ((JsonPrimitive) element).isNumber()) {
            String number = element.getAsString();
            if (number.startsWith(mark)) {
                String digits = numbers.get(Integer.parseInt(number.substring(mark.length())));
                return new JsonPrimitive(new LazilyParsedNumber(digits));
            }
        }
        return element;
    }

    private static boolean isOfNumber(char character) {
        return character >= '0' && character <= '9' || character == '.' || character == '-' || character == '+'
                || character == 'e' || character == 'E';
    }
}
