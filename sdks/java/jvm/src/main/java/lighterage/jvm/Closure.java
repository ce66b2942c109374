package lighterage.jvm;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import lighterage.DoesNotTravel;

/**
 * Classes, and every class that they refer to, but for those of the platform: kilobytes of an application of megabytes.
 *
 * <p>This library goes along where a class refers to it. A unit has no nodes, so an offloaded method that is called
 * there runs there.
 *
 * <p>A class file names what it refers to in its constant pool; no class is loaded for it. What is found by its name
 * only, by reflection or as a service, is not found here: name it too.
 *
 * <p>As a program it writes the jar that an Android application has among its assets:
 * `java -cp CLASSPATH lighterage.jvm.Closure offload.jar app.Numeric app.Faces`.
 */
public final class Closure {
    /** Those of a node: classes in a jar, and bytes of it. */
    private static final int CLASSES_MAX = 20_000;
    private static final int BYTES_MAX = 32 << 20;
    private static final LocalDateTime TIME = LocalDateTime.of(1980, 1, 1, 0, 0, 2);
    /** A class in a descriptor or signature: `Lapp/Work;`, `Ljava/util/List<Lapp/Work;>;`. */
    private static final Pattern NAMED = Pattern.compile("L([\\p{javaJavaIdentifierPart}/]+)[;<]");

    private final ClassLoader loader;
    private final Map<String, byte[]> files = new TreeMap<>();
    private final Set<String> seen = new HashSet<>();
    private long bytes;

    /** One without classes, which are found as this loader finds them. */
    public Closure(ClassLoader loader) {
        this.loader = loader;
    }

    /** Writes the jar of the classes that are named. */
    public static void main(String[] arguments) throws IOException {
        if (arguments.length < 2) {
            System.err.println("usage: java -cp CLASSPATH lighterage.jvm.Closure FILE.jar CLASS…");
            System.exit(2);
        }
        Closure closure = new Closure(Closure.class.getClassLoader());
        for (int at = 1; at < arguments.length; at++) {
            if (!closure.add(arguments[at])) {
                System.err.println("there is no class " + arguments[at] + " on the class path");
                System.exit(1);
            }
        }
        Files.write(Path.of(arguments[0]), closure.jar());
        System.err.println(closure.files.size() + " classes");
    }

    /** Adds a class, `package.Name`, and what it refers to; whether it is there. Throws DoesNotTravel beyond limits. */
    public boolean add(String className) {
        Deque<String> left = new ArrayDeque<>();
        String first = className.replace('.', '/');
        left.add(first);
        while (!left.isEmpty()) {
            String name = left.remove();
            if (isElsewhere(name) || !seen.add(name)) {
                continue;
            }
            byte[] file = file(name);
            if (file == null) {
                continue;
            }
            files.put(name + ".class", file);
            bytes += file.length;
            if (files.size() > CLASSES_MAX || bytes > BYTES_MAX) {
                throw new DoesNotTravel(className + " refers to more than " + CLASSES_MAX + " classes or " + BYTES_MAX
                        + " bytes of them; give the method a class of its own");
            }
            left.addAll(references(file));
        }
        return files.containsKey(first + ".class");
    }

    /** Whether no class was found. */
    public boolean isEmpty() {
        return files.isEmpty();
    }

    /** The jar; the same classes make the same bytes. */
    public byte[] jar() {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (JarOutputStream jar = new JarOutputStream(out)) {
            for (Map.Entry<String, byte[]> file : files.entrySet()) {
                JarEntry entry = new JarEntry(file.getKey());
                entry.setTimeLocal(TIME);
                jar.putNextEntry(entry);
                jar.write(file.getValue());
                jar.closeEntry();
            }
        } catch (IOException never) {
            throw new UncheckedIOException(never);
        }
        return out.toByteArray();
    }

    /** Whether a node has the class: of Java, of Android, or of the unit half. */
    private static boolean isElsewhere(String name) {
        return name.startsWith("java/")
                || name.startsWith("android/")
                || name.startsWith("lighterage/unit/")
                || ClassLoader.getPlatformClassLoader().getResource(name + ".class") != null;
    }

    private byte[] file(String name) {
        try (InputStream in = loader.getResourceAsStream(name + ".class")) {
            return in == null ? null : in.readAllBytes();
        } catch (IOException error) {
            throw new DoesNotTravel("the class file of " + name + " cannot be read: " + error.getMessage());
        }
    }

    /** The classes that a class file names. */
    private static Set<String> references(byte[] file) {
        Set<String> names = new HashSet<>();
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(file))) {
            skip(in, 8);
            int count = in.readUnsignedShort();
            String[] texts = new String[count];
            Set<Integer> classes = new HashSet<>();
            for (int at = 1; at < count; at++) {
                at += constant(in, at, texts, classes) ? 1 : 0;
            }
            for (String text : texts) {
                Matcher found = text == null ? null : NAMED.matcher(text);
                while (found != null && found.find()) {
                    names.add(found.group(1));
                }
            }
            for (int at : classes) {
                if (!texts[at].startsWith("[")) {
                    names.add(texts[at]);
                }
            }
        } catch (IOException | IndexOutOfBoundsException | NullPointerException broken) {
            throw new DoesNotTravel("a class file is broken: " + broken);
        }
        return names;
    }

    /** Reads one constant; whether it takes two places. */
    private static boolean constant(DataInputStream in, int at, String[] texts, Set<Integer> classes)
            throws IOException {
        int tag = in.readUnsignedByte();
        switch (tag) {
            case 1:
                texts[at] = in.readUTF();
                return false;
            case 7:
                classes.add(in.readUnsignedShort());
                return false;
            case 5:
            case 6:
                skip(in, 8);
                return true;
            case 8:
            case 16:
            case 19:
            case 20:
                skip(in, 2);
                return false;
            case 15:
                skip(in, 3);
                return false;
            default:
                skip(in, 4);
                return false;
        }
    }

    private static void skip(DataInputStream in, int bytes) throws IOException {
        in.readFully(new byte[bytes]);
    }
}
