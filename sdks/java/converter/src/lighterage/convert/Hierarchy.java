package lighterage.convert;

import java.io.IOException;
import java.io.InputStream;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.tree.ClassNode;

/** Which classes there are: the image's own, those of the base, and those of Java. Names are internal: `a/B`. */
final class Hierarchy {
    /** What the base and Java have, by name. Kept for the life of the converter; an image's own never stand here. */
    private static final Map<String, Known> BASE = new HashMap<>();

    private final Map<String, ClassNode> own = new LinkedHashMap<>();
    /** What neither has. An image may name any number of such classes: they go with it. */
    private final Set<String> missing = new HashSet<>();
    private final Function<String, InputStream> base;

    Hierarchy(Function<String, InputStream> base) {
        this.base = base;
    }

    /** The class above, the interfaces, whether it is one itself, and its methods as `name(types)type`. */
    record Known(String above, List<String> interfaces, boolean isInterface, Set<String> methods) {}

    /** The first class of a name counts, as on Android. */
    void add(ClassNode node) {
        own.putIfAbsent(node.name, node);
    }

    /** The image's own class of this name; null: it has none. */
    ClassNode own(String name) {
        return own.get(name);
    }

    Iterable<ClassNode> all() {
        return own.values();
    }

    /** null: there is no such class. */
    Known find(String name) {
        ClassNode node = own.get(name);
        if (node != null) {
            return new Known(node.superName, node.interfaces, (node.access & Opcodes.ACC_INTERFACE) != 0, Set.of());
        }
        Known known = BASE.get(name);
        if (known == null && !missing.contains(name)) {
            known = read(name);
            if (known == null) {
                missing.add(name);
            } else {
                BASE.put(name, known);
            }
        }
        return known;
    }

    /** null: there is none that can be read. */
    private Known read(String name) {
        try (InputStream in = base.apply(name)) {
            if (in == null) {
                return null;
            }
            ClassReader reader = new ClassReader(in);
            Set<String> methods = new HashSet<>();
            int skipped = ClassReader.SKIP_CODE | ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES;
            reader.accept(new Methods(methods), skipped);
            boolean isInterface = (reader.getAccess() & Opcodes.ACC_INTERFACE) != 0;
            return new Known(reader.getSuperName(), List.of(reader.getInterfaces()), isInterface, methods);
        } catch (IOException | RuntimeException unreadable) {
            return null;
        }
    }

    private static final class Methods extends ClassVisitor {
        private final Set<String> methods;

        Methods(Set<String> methods) {
            super(Opcodes.ASM9);
            this.methods = methods;
        }

        @Override
        public MethodVisitor visitMethod(int access, String name, String types, String generic, String[] throwables) {
            methods.add(name + types);
            return null;
        }
    }

    /** Every class and interface above this one, as far as it is known. */
    Set<String> above(String name) {
        Set<String> above = new HashSet<>();
        addAbove(name, above);
        return above;
    }

    private void addAbove(String name, Set<String> above) {
        Known known = find(name);
        if (known == null) {
            return;
        }
        if (known.above != null && above.add(known.above)) {
            addAbove(known.above, above);
        }
        for (String one : known.interfaces) {
            if (above.add(one)) {
                addAbove(one, above);
            }
        }
    }

    /** The class below which both are, as the verifier of Java has it: interfaces count as Object. */
    String common(String one, String other) {
        Set<String> above = new HashSet<>();
        // A class may name itself as the one above: that is for the verifier to refuse.
        for (String name = one; name != null && above.add(name); ) {
            name = classAbove(name);
        }
        Set<String> seen = new HashSet<>();
        for (String name = other; name != null && seen.add(name); name = classAbove(name)) {
            if (above.contains(name)) {
                return isInterface(name) ? "java/lang/Object" : name;
            }
        }
        return "java/lang/Object";
    }

    boolean isInterface(String name) {
        Known known = find(name);
        return known != null && known.isInterface;
    }

    private String classAbove(String name) {
        Known known = find(name);
        return known == null || known.isInterface ? null : known.above;
    }
}
