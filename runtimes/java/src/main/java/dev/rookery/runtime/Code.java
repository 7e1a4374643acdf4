package dev.rookery.runtime;

import dev.rookery.Context;
import dev.rookery.runtime.Program.Entry;
import dev.rookery.runtime.Protocol.Init;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Loads the methods that {@code package.Class.method} names below the code directory. */
final class Code {
    private static final int MAX_HANDLER_PARAMETERS = 2;
    private static final String ALARM_ENTRY = "alarm entry";

    final Program program;
    /** The initializer; null without one. */
    final Entry initializer;
    final Entry preStop;
    /** Reason why pre_stop cannot be run. Reported when the instance stops, since calls do not need it. */
    final Failure preStopFailure;

    private Code(Program program, Entry initializer, Entry preStop, Failure preStopFailure) {
        this.program = program;
        this.initializer = initializer;
        this.preStop = preStop;
        this.preStopFailure = preStopFailure;
    }

    /** Runs an initializer or a pre_stop method. */
    Void runHook(Entry hook, Context context) throws Exception {
        try {
            hook.invoke(null, context);
            return null;
        } catch (Exception | Error error) {
            throw error;
        } catch (Throwable odd) {
            throw new IllegalStateException(odd);
        }
    }

    static Code load(Init init, Facts facts) throws Failure {
        ClassPath path = ClassPath.below(init.codePath, init.handler);
        Thread.currentThread().setContextClassLoader(path.loader());
        Map<Class<?>, Object> targets = new HashMap<>();
        Finder finder = new Finder(path, targets);
        Entry handler = finder.find("handler", init.handler, null);
        Class<?> home = handler.method.getDeclaringClass();
        Entry initializer = null;
        if (isNamed(init.initializer)) {
            try {
                initializer = finder.find("initializer", init.initializer, home);
            } catch (Failure why) {
                throw new Failure(Protocol.CODE_INITIALIZER, "initializer failed: " + why.getMessage());
            }
        }
        Entry preStop = null;
        Failure preStopFailure = null;
        if (isNamed(init.preStop)) {
            try {
                preStop = finder.find("pre_stop", init.preStop, home);
            } catch (Failure why) {
                Log.line("rookery: " + why.getMessage());
                preStopFailure = why;
            }
        }
        Map<String, Entry> entries = new HashMap<>();
        if (init.durable != null && init.durable.entries != null) {
            if (isNamed(init.durable.entries.alarm)) {
                entries.put("alarm", finder.find(ALARM_ENTRY, init.durable.entries.alarm, home));
            }
            if (isNamed(init.durable.entries.sleep)) {
                entries.put("sleep", finder.find("sleep entry", init.durable.entries.sleep, home));
            }
        }
        Program program = new Program(path.loader(), facts, handler, entries, init.maxResultBytes);
        return new Code(program, initializer, preStop, preStopFailure);
    }

    private static boolean isNamed(String entry) {
        return entry != null && !entry.isEmpty();
    }

    /** Finds methods. Creates one object of each class whose method is not static. */
    private static final class Finder {
        private final ClassPath path;
        private final Map<Class<?>, Object> targets;

        Finder(ClassPath path, Map<Class<?>, Object> targets) {
            this.path = path;
            this.targets = targets;
        }

        /**
         * Finds the method of an entry. `home` is the class of an entry without a class; null if an entry
         * needs one.
         */
        Entry find(String kind, String entry, Class<?> home) throws Failure {
            int dot = entry.lastIndexOf('.');
            boolean hasClass = dot > 0 && dot < entry.length() - 1;
            if (!hasClass && (home == null || dot >= 0)) {
                throw failure(kind, entry, "it must have the form package.Class.method");
            }
            try {
                Class<?> type = hasClass ? path.find(entry.substring(0, dot)) : home;
                Method method = choose(kind, entry, type, entry.substring(dot + 1));
                method.setAccessible(true); // public methods of classes that are not public need this
                boolean isHandler = kind.equals("handler") || kind.equals(ALARM_ENTRY);
                int parameters = method.getParameterCount();
                boolean takesContext = parameters > 0
                        && method.getParameterTypes()[parameters - 1] == Context.class;
                return new Entry(
                        Modifier.isStatic(method.getModifiers()) ? null : target(type),
                        method, isHandler && parameters > (takesContext ? 1 : 0), takesContext);
            } catch (ClassNotFoundException missing) {
                throw failure(kind, entry, missing.getMessage());
            } catch (Failure known) {
                throw known;
            } catch (InvocationTargetException error) {
                Log.thrown("cannot load the " + kind + " " + entry, error.getCause());
                throw failure(kind, entry, Log.textOf(error.getCause()));
            } catch (ReflectiveOperationException | RuntimeException | LinkageError error) {
                Log.thrown("cannot load the " + kind + " " + entry, error);
                throw failure(kind, entry, Log.textOf(error));
            }
        }

        private Object target(Class<?> type) throws ReflectiveOperationException {
            Object target = targets.get(type);
            if (target == null) {
                try {
                    java.lang.reflect.Constructor<?> constructor = type.getDeclaredConstructor();
                    constructor.setAccessible(true);
                    target = constructor.newInstance();
                } catch (NoSuchMethodException | InstantiationException none) {
                    throw new ReflectiveOperationException(type.getName()
                            + " has no constructor without parameters, which a method that is not static needs");
                }
                targets.put(type, target);
            }
            return target;
        }

        private Method choose(String kind, String entry, Class<?> type, String name) throws Failure {
            boolean isHandler = kind.equals("handler") || kind.equals(ALARM_ENTRY);
            List<Method> found = new ArrayList<>();
            for (Method method : type.getMethods()) {
                if (method.getName().equals(name) && !method.isBridge() && !method.isSynthetic()
                        && method.getDeclaringClass() != Object.class && fits(method, isHandler)) {
                    found.add(method);
                }
            }
            if (found.isEmpty()) {
                throw failure(kind, entry, type.getName() + " has no public method " + name
                        + (isHandler ? "(event), (event, Context), (Context) or ()" : "(Context) or ()"));
            }
            if (found.size() > 1) {
                found.removeIf(method -> isOverridden(method, found));
            }
            if (found.size() > 1) {
                throw failure(kind, entry, type.getName() + " has more than one such method: " + found);
            }
            return found.get(0);
        }

        private static boolean fits(Method method, boolean isHandler) {
            Class<?>[] types = method.getParameterTypes();
            if (types.length == 0 || types.length == 1 && types[0] == Context.class) {
                return true;
            }
            return isHandler && (types.length == 1
                    || types.length == MAX_HANDLER_PARAMETERS && types[1] == Context.class
                            && types[0] != Context.class);
        }

        /** Returns true if a more specific type declares the same method: an interface may repeat it. */
        private static boolean isOverridden(Method method, List<Method> others) {
            return others.stream().anyMatch(other -> other != method
                    && Arrays.equals(other.getParameterTypes(), method.getParameterTypes())
                    && other.getDeclaringClass() != method.getDeclaringClass()
                    && method.getDeclaringClass().isAssignableFrom(other.getDeclaringClass()));
        }

        private static Failure failure(String kind, String entry, String why) {
            return new Failure(Protocol.CODE_LOAD, "cannot load the " + kind + " " + entry + ": " + why);
        }
    }
}
