package dev.rookery.runtime;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.channels.Channel;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;

/** Opens the listening socket that the settings name. */
final class Endpoint {
    private static final int BACKLOG = 128;
    private static final String TCP = "tcp:";

    private Endpoint() {
    }

    static ServerSocketChannel listen(Settings settings) throws IOException {
        if (!settings.fd.isEmpty()) {
            return inherited(settings.fd);
        }
        if (settings.socket.startsWith(TCP)) {
            String portFile = settings.portFile;
            return tcp(address(settings.socket.substring(TCP.length())), portFile.isEmpty() ? null : Paths.get(portFile));
        }
        if (settings.socket.isEmpty()) {
            throw new IOException(Settings.SOCKET + " or " + Settings.FD + " must say where to listen: a path, "
                    + "tcp:host:port, or 0 for a listening socket on descriptor 0");
        }
        try {
            return unix(Paths.get(settings.socket), UnixSockets.find());
        } catch (ReflectiveOperationException error) {
            throw UnixSockets.failure(settings.socket, error);
        }
    }

    /** Returns the inherited listener. Java can only inherit descriptor 0. */
    private static ServerSocketChannel inherited(String fd) throws IOException {
        if (!fd.equals("0")) {
            throw new IOException(Settings.FD + " is " + fd
                    + ", but Java can only take over descriptor 0: start it with the socket as its standard input");
        }
        Channel channel = System.inheritedChannel();
        if (!(channel instanceof ServerSocketChannel)) {
            throw new IOException("descriptor 0 (" + Settings.FD + ") is not a listening socket that Java "
                    + System.getProperty("java.version") + " can use");
        }
        ServerSocketChannel listener = (ServerSocketChannel) channel;
        listener.configureBlocking(false); // may be non-blocking, unknown to Java
        listener.configureBlocking(true);
        return listener;
    }

    private static InetSocketAddress address(String text) throws IOException {
        int colon = text.lastIndexOf(':');
        try {
            return new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
        } catch (IllegalArgumentException | StringIndexOutOfBoundsException error) {
            throw new IOException(Settings.SOCKET + " must have the form tcp:host:port, not tcp:" + text);
        }
    }

    private static ServerSocketChannel tcp(InetSocketAddress address, Path portFile) throws IOException {
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(address, BACKLOG);
        if (portFile != null) {
            InetSocketAddress bound = (InetSocketAddress) listener.getLocalAddress();
            // The rename makes the complete file appear at once.
            Path next = portFile.resolveSibling(portFile.getFileName() + ".new");
            String text = bound.getAddress().getHostAddress() + ":" + bound.getPort() + "\n";
            Files.write(next, text.getBytes(StandardCharsets.US_ASCII));
            Files.move(next, portFile, StandardCopyOption.ATOMIC_MOVE);
        }
        return listener;
    }

    private static ServerSocketChannel unix(Path path, UnixSockets sockets)
            throws IOException, ReflectiveOperationException {
        SocketAddress address = sockets.address(path);
        if (Files.exists(path, LinkOption.NOFOLLOW_LINKS)) {
            removeLeftOver(path, address, sockets);
        }
        ServerSocketChannel listener = sockets.newListener();
        listener.bind(address, BACKLOG);
        // The control plane often runs as another user. The directory's mode and the secret protect the
        // socket.
        Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-rw-rw-"));
        path.toFile().deleteOnExit();
        return listener;
    }

    /** Removes a socket on which no process listens. Fails if the path is no socket, or a process listens. */
    private static void removeLeftOver(Path path, SocketAddress address, UnixSockets sockets)
            throws IOException, ReflectiveOperationException {
        if (!Files.readAttributes(path, java.nio.file.attribute.BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS)
                .isOther()) {
            throw new IOException(path + " (" + Settings.SOCKET + ") exists and is not a socket");
        }
        boolean isServed;
        try (SocketChannel probe = sockets.newChannel()) {
            isServed = probe.connect(address);
        } catch (java.net.ConnectException refused) {
            isServed = false;
        }
        if (isServed) {
            throw new IOException("something listens on " + path + " (" + Settings.SOCKET + ") already");
        }
        Files.delete(path);
    }
}
