package dev.rookery.runtime;

import java.lang.reflect.Field;
import java.util.Map;

/** The control plane's settings from the environment. User code does not see them. */
final class Settings {
    static final String SOCKET = "ROOKERY_RUNTIME_SOCKET";
    static final String FD = "ROOKERY_RUNTIME_FD";
    static final String SECRET = "ROOKERY_RUNTIME_SECRET";
    static final String PORT_FILE = "ROOKERY_RUNTIME_PORT_FILE";

    final String socket;
    final String fd;
    final String secret;
    /** File to which a TCP listener writes its address; empty without one. */
    final String portFile;

    Settings(String socket, String fd, String secret, String portFile) {
        this.socket = socket;
        this.fd = fd;
        this.secret = secret;
        this.portFile = portFile;
    }

    /** Reads the settings and removes them from the environment of System.getenv and of child processes. */
    static Settings take() {
        Map<String, String> environment = System.getenv();
        Settings settings = new Settings(
                environment.getOrDefault(SOCKET, ""),
                environment.getOrDefault(FD, ""),
                environment.getOrDefault(SECRET, ""),
                environment.getOrDefault(PORT_FILE, ""));
        forget(environment);
        return settings;
    }

    /**
     * Removes the settings from the map behind the read-only environment, which the jar's manifest opens to
     * reflection.
     */
    @SuppressWarnings("unchecked")
    private static void forget(Map<String, String> environment) {
        try {
            Field behind = environment.getClass().getDeclaredField("m");
            behind.setAccessible(true);
            Map<String, String> writable = (Map<String, String>) behind.get(environment);
            for (String name : new String[] {SOCKET, FD, SECRET, PORT_FILE}) {
                writable.remove(name);
            }
        } catch (ReflectiveOperationException | RuntimeException error) {
            Log.line("rookery: the runtime's own settings stay visible to the code: " + error);
        }
    }
}
