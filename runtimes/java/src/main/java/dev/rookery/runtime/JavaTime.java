package dev.rookery.runtime;

import com.google.gson.Gson;
import com.google.gson.JsonParseException;
import com.google.gson.TypeAdapter;
import com.google.gson.TypeAdapterFactory;
import com.google.gson.reflect.TypeToken;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import com.google.gson.stream.JsonWriter;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/**
 * Converts types of java.time with an ISO form ({@code Instant}, {@code LocalDate}, {@code Duration} …) to
 * and from text.
 */
final class JavaTime implements TypeAdapterFactory {
    @Override
    public <T> TypeAdapter<T> create(Gson gson, TypeToken<T> type) {
        Class<? super T> raw = type.getRawType();
        if (!raw.getName().startsWith("java.time.")) {
            return null;
        }
        Method parse;
        try {
            parse = raw.getMethod("parse", CharSequence.class);
        } catch (NoSuchMethodException none) {
            return null;
        }
        return new Text<T>(parse).nullSafe();
    }

    private static final class Text<T> extends TypeAdapter<T> {
        private final Method parse;

        Text(Method parse) {
            this.parse = parse;
        }

        @Override
        public void write(JsonWriter out, T value) throws IOException {
            out.value(value.toString());
        }

        @Override
        @SuppressWarnings("unchecked")
        public T read(JsonReader in) throws IOException {
            if (in.peek() != JsonToken.STRING) {
                throw new JsonParseException("expected a text at " + in.getPath());
            }
            try {
                return (T) parse.invoke(null, in.nextString());
            } catch (InvocationTargetException error) {
                throw new JsonParseException(error.getCause().getMessage(), error.getCause());
            } catch (IllegalAccessException error) {
                throw new JsonParseException(error);
            }
        }
    }
}
