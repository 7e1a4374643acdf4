package dev.rookery.runtime;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;

/** The facts from INIT that are the same for all calls of an instance, and the state that calls share. */
final class Facts {
    final Protocol.Init init;
    final ConcurrentMap<String, Object> state = new ConcurrentHashMap<>();

    Facts(Protocol.Init init) {
        this.init = init;
    }
}
