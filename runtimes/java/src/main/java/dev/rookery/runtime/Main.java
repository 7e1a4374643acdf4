package dev.rookery.runtime;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.channels.ServerSocketChannel;

/** The program of the runtime: serves one instance, whose code INIT names. */
public final class Main {
    private static final int EXIT_USAGE = 2;
    private static final long SIGTERM_GRACE_MS = 10_000;

    private Main() {
    }

    public static void main(String[] arguments) throws InterruptedException {
        Log.open();
        Settings settings = Settings.take();
        if (settings.secret.isEmpty()) {
            fail(Settings.SECRET + " is not set: it must hold the secret that connections open with");
        }
        ServerSocketChannel listener = null;
        try {
            listener = Endpoint.listen(settings);
        } catch (IOException error) {
            fail(error.getMessage());
        }
        Instance instance = new Instance();
        onSignals(instance);
        new Server(instance, settings.secret).serve(listener);
    }

    private static void fail(String why) {
        Log.line("rookery: " + why);
        System.exit(EXIT_USAGE);
    }

    /**
     * Stops the instance at SIGTERM and SIGINT, as STOP does.
     *
     * <p>Uses reflection: every Java has the class, but the API for this compilation does not.
     */
    private static void onSignals(Instance instance) {
        try {
            Class<?> signal = Class.forName("sun.misc.Signal");
            Class<?> handler = Class.forName("sun.misc.SignalHandler");
            Object stop = Proxy.newProxyInstance(handler.getClassLoader(), new Class<?>[] {handler},
                    (proxy, method, arguments) -> {
                        if (method.getName().equals("handle")) {
                            instance.lifecycle.stop(null, SIGTERM_GRACE_MS);
                        }
                        return null;
                    });
            for (String name : new String[] {"TERM", "INT"}) {
                signal.getMethod("handle", signal, handler)
                        .invoke(null, signal.getConstructor(String.class).newInstance(name), stop);
            }
        } catch (ReflectiveOperationException | RuntimeException error) {
            Log.line("rookery: SIGTERM ends the instance at once: " + error);
        }
    }
}
