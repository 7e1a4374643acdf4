package dev.rookery.runtime;

import java.io.IOException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.FileVisitOption;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The classes and jars below a code directory. */
final class ClassPath {
    private static final int MAX_DEPTH = 8;
    private static final int MAX_JARS = 4096;

    private final Path directory;
    private final int jars;
    /** A sentence about a dangling link below the directory; null if there is none. */
    private final String brokenLink;
    private final URLClassLoader loader;

    private ClassPath(Path directory, List<URL> urls, int jars, String brokenLink) {
        this.directory = directory;
        this.jars = jars;
        this.brokenLink = brokenLink;
        this.loader = new URLClassLoader(urls.toArray(new URL[0]), ClassPath.class.getClassLoader());
    }

    /**
     * Returns a class path of the directory, its {@code classes} directory if it exists, and all jars below
     * it by name.
     */
    static ClassPath below(String codePath, String handler) throws Failure {
        if (codePath == null || codePath.isEmpty()) {
            throw failure(handler, "codePath is empty, so there is no directory to look in");
        }
        Path directory = Paths.get(codePath);
        if (!Files.isDirectory(directory)) {
            throw failure(handler, "the code directory " + codePath + " " + whyNoDirectory(directory));
        }
        try (Stream<Path> files = Files.walk(directory, MAX_DEPTH, FileVisitOption.FOLLOW_LINKS)) {
            String[] brokenLink = {null};
            List<Path> jars = files
                    .peek(file -> brokenLink[0] = brokenLink[0] == null ? brokenLinkText(file) : brokenLink[0])
                    .filter(file -> file.toString().endsWith(".jar") && Files.isRegularFile(file))
                    .sorted()
                    .limit(MAX_JARS + 1)
                    .collect(Collectors.toList());
            if (jars.size() > MAX_JARS) {
                throw failure(handler, "there are more than " + MAX_JARS + " jars below " + codePath);
            }
            List<URL> urls = new ArrayList<>();
            urls.add(url(directory));
            Path classes = directory.resolve("classes");
            if (Files.isDirectory(classes)) {
                urls.add(url(classes));
            }
            for (Path jar : jars) {
                urls.add(url(jar));
            }
            return new ClassPath(directory, urls, jars.size(), brokenLink[0]);
        } catch (IOException | java.io.UncheckedIOException error) {
            throw failure(handler, "the code directory " + codePath + " cannot be read: " + error.getMessage());
        }
    }

    ClassLoader loader() {
        return loader;
    }

    /**
     * Returns a class of the user's code.
     *
     * @throws ClassNotFoundException whose text names the searched directory
     */
    Class<?> find(String name) throws ClassNotFoundException {
        try {
            Class<?> found = Class.forName(name, true, loader);
            if (found.getClassLoader() == loader) {
                return found;
            }
        } catch (ClassNotFoundException missing) {
            // Reported below with a text that names the directory.
        } catch (UnsupportedClassVersionError error) {
            throw new ClassNotFoundException("class " + name + " was compiled for a newer Java than this "
                    + System.getProperty("java.version") + ": " + error.getMessage());
        }
        throw new ClassNotFoundException(
                "class " + name + " not found in " + directory + ", nor in the " + jars + " jars below it"
                        + (brokenLink == null ? "" : "; " + brokenLink));
    }

    private static String whyNoDirectory(Path path) {
        if (Files.exists(path)) {
            return "is a file and not a directory: unpack it, and mount the directory";
        }
        String text = brokenLinkText(path);
        return text == null ? "does not exist" : text.substring((path + " ").length());
    }

    /** Returns a sentence about a dangling link, or null if the path is none. */
    private static String brokenLinkText(Path path) {
        if (!Files.isSymbolicLink(path) || Files.exists(path)) {
            return null;
        }
        try {
            return path + " is a link to " + Files.readSymbolicLink(path) + ", which does not exist inside the sandbox";
        } catch (IOException gone) {
            return null;
        }
    }

    private static URL url(Path path) throws MalformedURLException {
        return path.toUri().toURL();
    }

    private static Failure failure(String handler, String why) {
        return new Failure(Protocol.CODE_LOAD, "cannot load the handler " + handler + ": " + why);
    }
}
