package dev.rookery.runtime;

import com.google.gson.JsonParseException;
import dev.rookery.Context;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Type;

/** The loaded user code. */
final class Program {
    /** A method of the user's code, with the object on which it is called. */
    static final class Entry {
        final Object target;
        final Method method;
        final boolean takesEvent;
        final boolean takesContext;

        Entry(Object target, Method method, boolean takesEvent, boolean takesContext) {
            this.target = target;
            this.method = method;
            this.takesEvent = takesEvent;
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
    private final Type eventType;
    private final int maxResultBytes;

    Program(ClassLoader loader, Facts facts, Entry handler, int maxResultBytes) {
        this.loader = loader;
        this.facts = facts;
        this.handler = handler;
        this.eventType = handler.takesEvent ? handler.method.getGenericParameterTypes()[0] : null;
        this.maxResultBytes = maxResultBytes;
    }

    ClassLoader loader() {
        return loader;
    }

    int maxResultBytes() {
        return maxResultBytes;
    }

    Object handle(Call call) throws Throwable {
        Object event = handler.takesEvent ? read(call.event) : null;
        return handler.invoke(event, handler.takesContext ? new CallContext(facts, call, null) : null);
    }

    private Object read(byte[] event) {
        try {
            return Json.event(event, eventType);
        } catch (JsonParseException | NumberFormatException error) {
            throw new IllegalArgumentException(
                    "the event cannot be read as " + eventType.getTypeName() + ": " + error.getMessage());
        }
    }
}
