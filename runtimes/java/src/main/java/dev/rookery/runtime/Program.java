package dev.rookery.runtime;

import com.google.gson.JsonParseException;
import dev.rookery.Context;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.util.Map;

/** The loaded user code. */
final class Program {
    /** A method of the user's code, with the object on which it is called. */
    static final class Entry {
        final Object target;
        final Method method;
        final boolean takesEvent;
        final Type eventType;
        final boolean takesContext;

        Entry(Object target, Method method, boolean takesEvent, boolean takesContext) {
            this.target = target;
            this.method = method;
            this.takesEvent = takesEvent;
            this.eventType = takesEvent ? method.getGenericParameterTypes()[0] : null;
            this.takesContext = takesContext;
        }

        Object invoke(Object event, Context context) throws Throwable {
            try {
                if (takesEvent) {
                    return takesContext ? method.invoke(target, event, context) : method.invoke(target, event);
                }
                return takesContext ? method.invoke(target, context) : method.invoke(target);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
        }
    }

    private final ClassLoader loader;
    private final Facts facts;
    private final Entry handler;
    /** Methods that run instead of the handler, by the entry of a call. */
    private final Map<String, Entry> entries;
    private final int maxResultBytes;

    Program(ClassLoader loader, Facts facts, Entry handler, Map<String, Entry> entries, int maxResultBytes) {
        this.loader = loader;
        this.facts = facts;
        this.handler = handler;
        this.entries = entries;
        this.maxResultBytes = maxResultBytes;
    }

    ClassLoader loader() {
        return loader;
    }

    int maxResultBytes() {
        return maxResultBytes;
    }

    Object handle(Call call) throws Throwable {
        Entry entry = entries.isEmpty() ? handler : entries.getOrDefault(call.header().entry, handler);
        Object event = entry.takesEvent ? read(call.event, entry.eventType) : null;
        return entry.invoke(event, entry.takesContext ? new CallContext(facts, call, null) : null);
    }

    private static Object read(byte[] event, Type eventType) {
        try {
            return Json.event(event, eventType);
        } catch (JsonParseException | NumberFormatException error) {
            throw new IllegalArgumentException(
                    "the event cannot be read as " + eventType.getTypeName() + ": " + error.getMessage());
        }
    }
}
