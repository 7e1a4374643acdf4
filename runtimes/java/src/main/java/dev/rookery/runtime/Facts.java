package dev.rookery.runtime;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;

/** The facts from INIT that are the same for all calls of an instance, and the state that calls share. */
final class Facts {
    final Protocol.Init init;
    final ConcurrentMap<String, Object> state = new ConcurrentHashMap<>();

    /** The state of a durable agent; null for another. */
    final Durable durable;
    /** The state of an agent that is not durable; null: nothing yet. Guarded by this. */
    private Object memory;

    Facts(Protocol.Init init, Durable durable) {
        this.init = init;
        this.durable = durable;
    }

    synchronized <T> T memory(Class<T> type) {
        if (memory == null) {
            memory = Durable.empty(type);
        }
        if (!type.isInstance(memory)) {
            throw new IllegalStateException("the state is in use as a " + memory.getClass().getName()
                    + " and cannot be a " + type.getName() + " too");
        }
        return type.cast(memory);
    }

    synchronized void putMemory(Object state) {
        memory = state;
    }
}
