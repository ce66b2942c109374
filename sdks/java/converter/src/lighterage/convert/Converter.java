package lighterage.convert;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.zip.CRC32;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import java.util.zip.ZipOutputStream;
import lighterage.unit.Event;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.tree.ClassNode;

/**
 * A function of the node itself, in a jail like any other: makes a jar of a bundle's dex or apk, and says whether what
 * its entry reaches is there.
 *
 * <p>It takes a bundle, whose entry is the event's subject. Its reply begins with a byte: 0, then the jar, of no bytes
 * if the bundle's own jar is to be used; 1, then what is wrong with the image; 2, then what the base does not have.
 */
public final class Converter {
    private static final byte CONVERTED = 0;
    private static final byte UNFIT = 1;
    private static final byte LACKING = 2;
    /** Kept from call to call: names, and the base's own classes. */
    private static Set<String> published;
    private static ZipFile libdroid;

    private Converter() {}

    public static byte[] convert(Event event) throws IOException {
        open();
        try {
            return reply(CONVERTED, converted(event.subject(), Tar.read(event.data())));
        } catch (Unfit unfit) {
            return reply(UNFIT, unfit.getMessage().getBytes(StandardCharsets.UTF_8));
        } catch (Lacking lacking) {
            return reply(LACKING, lacking.getMessage().getBytes(StandardCharsets.UTF_8));
        }
    }

    private static byte[] reply(byte word, byte[] rest) {
        byte[] reply = new byte[rest.length + 1];
        reply[0] = word;
        System.arraycopy(rest, 0, reply, 1, rest.length);
        return reply;
    }

    private static void open() throws IOException {
        if (libdroid == null) {
            Path folder = Path.of(System.getProperty("lighterage.libdroid")).getParent();
            published = Set.copyOf(Files.readAllLines(folder.resolve("classes.txt")));
            libdroid = new ZipFile(folder.resolve("libdroid.jar").toFile());
        }
    }

    private static byte[] converted(String entry, Map<String, byte[]> bundle) throws IOException {
        Hierarchy hierarchy = new Hierarchy(Converter::ofBase);
        byte[] jar = new byte[0];
        if (bundle.containsKey("app.dex")) {
            jar = jar(hierarchy, List.of(bundle.get("app.dex")), Map.of());
        } else if (bundle.containsKey("app.apk")) {
            Apk apk = new Apk(bundle.get("app.apk"));
            jar = jar(hierarchy, apk.dex, apk.files);
        }
        bundle.forEach((name, content) -> {
            if (name.endsWith(".jar")) {
                addJar(hierarchy, name, content);
            }
        });
        new Reach(hierarchy, published).check(entry);
        return jar;
    }

    /** A jar of these dex files, and of what stands beside their classes. */
    static byte[] jar(List<byte[]> dex, Map<String, byte[]> files) throws IOException {
        open();
        return jar(new Hierarchy(Converter::ofBase), dex, files);
    }

    private static byte[] jar(Hierarchy hierarchy, List<byte[]> dex, Map<String, byte[]> files) throws IOException {
        for (int number = 0; number < dex.size(); number++) {
            String name = number == 0 ? "classes.dex" : "classes" + (number + 1) + ".dex";
            Translate.classes(name, dex.get(number)).forEach(hierarchy::add);
        }
        return jar(hierarchy, files);
    }

    /** The base's own bytes of a class: Libdroid's, or Java's; null: there is none. */
    private static InputStream ofBase(String name) {
        ZipEntry entry = libdroid.getEntry(name + ".class");
        try {
            return entry == null
                    ? ClassLoader.getPlatformClassLoader().getResourceAsStream(name + ".class")
                    : libdroid.getInputStream(entry);
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
    }

    private static void addJar(Hierarchy hierarchy, String jar, byte[] content) {
        Zip.Wanted wanted = name -> name.endsWith(".class") && !name.startsWith("META-INF/");
        Zip.read(jar, content, wanted).forEach((name, bytes) -> {
            try {
                ClassNode node = new ClassNode();
                new ClassReader(bytes).accept(node, ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES);
                hierarchy.add(node);
            } catch (RuntimeException broken) {
                throw new Unfit(jar + ": " + name + " is no class that this Java reads: " + broken.getMessage());
            }
        });
    }

    private static byte[] jar(Hierarchy hierarchy, Map<String, byte[]> files) throws IOException {
        Mend mend = new Mend(hierarchy);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ZipOutputStream jar = new ZipOutputStream(bytes)) {
            jar.setLevel(1);
            for (ClassNode node : hierarchy.all()) {
                byte[] written = written(mend, node);
                if (written != null) {
                    put(jar, node.name + ".class", written);
                }
            }
            for (Map.Entry<String, byte[]> file : files.entrySet()) {
                if (!file.getKey().endsWith(".class")) {
                    put(jar, file.getKey(), file.getValue());
                }
            }
        }
        return bytes.toByteArray();
    }

    /** null: a class file cannot hold it, such as a method of more than 64 KiB. Whatever needs it will miss it. */
    private static byte[] written(Mend mend, ClassNode node) {
        try {
            return mend.write(node);
        } catch (RuntimeException unwritable) {
            System.err.println(node.name.replace('/', '.') + " is left out: " + unwritable);
            return null;
        }
    }

    /** With the time that bundles have: the archive of a jar is refused where its times differ. */
    private static void put(ZipOutputStream jar, String name, byte[] content) throws IOException {
        ZipEntry entry = new ZipEntry(name);
        entry.setTime(0);
        jar.putNextEntry(entry);
        jar.write(content);
        jar.closeEntry();
    }
}
