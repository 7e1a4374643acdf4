package dev.rookery.runtime;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.net.MalformedURLException;
import java.net.ProtocolFamily;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.URISyntaxException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;

/**
 * Unix sockets of Java itself (since Java 16), otherwise of junixsocket in {@code lib/} beside the jar.
 *
 * <p>Uses reflection for both, since the API for this compilation has neither.
 */
abstract class UnixSockets {
    private static final String[] LIBRARIES = {"junixsocket-common", "junixsocket-native-common"};
    private static final String LIBRARY_VERSION = "2.10.1";

    abstract SocketAddress address(Path path) throws ReflectiveOperationException;

    abstract ServerSocketChannel newListener() throws ReflectiveOperationException;

    abstract SocketChannel newChannel() throws ReflectiveOperationException;

    static UnixSockets find() throws IOException {
        try {
            return new OfJava();
        } catch (ClassNotFoundException olderJava) {
            return OfLibrary.load();
        }
    }

    /** Returns the exception that a reflective call has thrown, as an IOException with the path. */
    static IOException failure(String path, ReflectiveOperationException error) {
        Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
        return new IOException("no unix socket can be made at " + path + ": " + cause.getMessage(), cause);
    }

    private static final class OfJava extends UnixSockets {
        private final Class<?> addresses = Class.forName("java.net.UnixDomainSocketAddress");

        OfJava() throws ClassNotFoundException {
        }

        @Override
        SocketAddress address(Path path) throws ReflectiveOperationException {
            return (SocketAddress) addresses.getMethod("of", Path.class).invoke(null, path);
        }

        @Override
        ServerSocketChannel newListener() throws ReflectiveOperationException {
            return open(ServerSocketChannel.class);
        }

        @Override
        SocketChannel newChannel() throws ReflectiveOperationException {
            return open(SocketChannel.class);
        }

        private static <T> T open(Class<T> type) throws ReflectiveOperationException {
            return type.cast(type.getMethod("open", ProtocolFamily.class)
                    .invoke(null, StandardProtocolFamily.valueOf("UNIX")));
        }
    }

    private static final class OfLibrary extends UnixSockets {
        private final ClassLoader loader;

        private OfLibrary(ClassLoader loader) {
            this.loader = loader;
        }

        /** Loads junixsocket in a separate class loader, so that user code may have another version of it. */
        static UnixSockets load() throws IOException {
            Path lib = directoryOfJar().resolve("lib");
            List<URL> urls = new ArrayList<>();
            for (String library : LIBRARIES) {
                Path jar = lib.resolve(library + "-" + LIBRARY_VERSION + ".jar");
                if (!jar.toFile().isFile()) {
                    throw new IOException("Java " + System.getProperty("java.version") + " has no unix sockets, and "
                            + jar + ", which has them, does not exist: build the runtime's jar again");
                }
                urls.add(url(jar));
            }
            return new OfLibrary(new URLClassLoader(urls.toArray(new URL[0]), null));
        }

        @Override
        SocketAddress address(Path path) throws ReflectiveOperationException {
            return (SocketAddress) named("AFUNIXSocketAddress").getMethod("of", Path.class).invoke(null, path);
        }

        @Override
        ServerSocketChannel newListener() throws ReflectiveOperationException {
            return (ServerSocketChannel) named("AFUNIXServerSocketChannel").getMethod("open").invoke(null);
        }

        @Override
        SocketChannel newChannel() throws ReflectiveOperationException {
            return (SocketChannel) named("AFUNIXSocketChannel").getMethod("open").invoke(null);
        }

        private Class<?> named(String name) throws ClassNotFoundException {
            return Class.forName("org.newsclub.net.unix." + name, true, loader);
        }

        private static Path directoryOfJar() throws IOException {
            try {
                return Paths.get(UnixSockets.class.getProtectionDomain().getCodeSource().getLocation().toURI())
                        .getParent();
            } catch (URISyntaxException error) {
                throw new IOException("the place of the runtime's jar cannot be told", error);
            }
        }

        private static URL url(Path path) throws MalformedURLException {
            return path.toUri().toURL();
        }
    }
}
