package lighterage.convert;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.objectweb.asm.Handle;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.FieldInsnNode;
import org.objectweb.asm.tree.InvokeDynamicInsnNode;
import org.objectweb.asm.tree.LdcInsnNode;
import org.objectweb.asm.tree.MethodInsnNode;
import org.objectweb.asm.tree.MethodNode;
import org.objectweb.asm.tree.MultiANewArrayInsnNode;
import org.objectweb.asm.tree.TypeInsnNode;

/**
 * What an entry reaches of Android, method by method: whatever the rest of an app uses does not matter.
 *
 * <p>A method is reached if one that is reached names it, or if its class is made and it stands for a method above that
 * is called, or that Java or Android may call. What is found by reflection alone is not seen: it fails when it is used.
 */
final class Reach {
    /** Names that are said of one image. */
    private static final int NAMES_MAX = 10;
    /** Of classes that only a system has, whoever brings them along. */
    private static final String[] SYSTEM = {
        "android/", "com/android/", "dalvik/", "libcore/", "org/json/", "org/xmlpull/"
    };
    private static final Set<String> LOADERS = Set.of("loadLibrary", "load", "load0");

    private final Hierarchy hierarchy;
    private final Set<String> published;
    private final Deque<Place> open = new ArrayDeque<>();
    private final Set<String> reached = new HashSet<>();
    private final Set<String> made = new HashSet<>();
    private final Set<String> called = new HashSet<>();
    private final Set<String> begun = new HashSet<>();
    /** What is missing, and who wants it. */
    private final Map<String, String> missing = new LinkedHashMap<>();

    private record Place(ClassNode owner, MethodNode method) {}

    /** `published`: names of classes that work, with dots. */
    Reach(Hierarchy hierarchy, Set<String> published) {
        this.hierarchy = hierarchy;
        this.published = published;
    }

    /** Throws Unfit if there is no such entry, or if it reaches what the base does not have. */
    void check(String entry) {
        String[] parts = entry.split("::", 2);
        String name = parts[0].replace('.', '/');
        ClassNode node = hierarchy.own(name);
        if (node == null) {
            throw new Unfit("the image has no class " + parts[0]);
        }
        boolean isThere = false;
        // A class may name itself as the one above: that is for the verifier to refuse.
        Set<ClassNode> seen = new HashSet<>();
        for (ClassNode one = node; one != null && seen.add(one); one = hierarchy.own(one.superName)) {
            for (MethodNode method : one.methods) {
                if (method.name.equals(parts[1])) {
                    isThere = true;
                    checkParameters(parts, method);
                    reach(one, method);
                }
            }
        }
        if (!isThere) {
            throw new Unfit(parts[0] + " has no method " + parts[1]);
        }
        make(name, entry);
        while (!open.isEmpty()) {
            follow(open.pop());
        }
        if (!missing.isEmpty()) {
            throw new Lacking(words());
        }
    }

    private void checkParameters(String[] entry, MethodNode method) {
        for (Type type : Type.getArgumentTypes(method.desc)) {
            Type element = type.getSort() == Type.ARRAY ? type.getElementType() : type;
            if (element.getSort() == Type.OBJECT && !isThere(element.getInternalName())) {
                String words = entry[0] + "::" + entry[1] + " takes a " + element.getClassName();
                throw new Lacking(words + ", which only an app on a device has");
            }
        }
    }

    private String words() {
        List<String> words = new ArrayList<>();
        missing.forEach((what, who) -> words.add(what + " (in " + who + ")"));
        int more = words.size() - NAMES_MAX;
        String all = String.join(", ", words.subList(0, Math.min(words.size(), NAMES_MAX)));
        return "it reaches " + all + (more > 0 ? " and " + more + " more" : "");
    }

    private void reach(ClassNode owner, MethodNode method) {
        begin(owner.name, owner.name);
        if (reached.add(owner.name + "." + method.name + method.desc)) {
            open.push(new Place(owner, method));
        }
    }

    private void follow(Place place) {
        String who = place.owner.name.replace('/', '.') + "::" + place.method.name;
        if ((place.method.access & Opcodes.ACC_NATIVE) != 0) {
            missing.putIfAbsent("the native method " + who, who);
        }
        for (AbstractInsnNode code : place.method.instructions) {
            if (code instanceof MethodInsnNode call) {
                call(call.owner, call.name, call.desc, call.getOpcode() == Opcodes.INVOKESTATIC, who);
            } else if (code instanceof FieldInsnNode field) {
                begin(field.owner, who);
            } else if (code instanceof TypeInsnNode type) {
                if (code.getOpcode() == Opcodes.NEW) {
                    make(type.desc, who);
                }
                use(Type.getObjectType(type.desc), who);
            } else if (code instanceof MultiANewArrayInsnNode array) {
                use(Type.getType(array.desc), who);
            } else if (code instanceof LdcInsnNode constant && constant.cst instanceof Type type) {
                use(type, who);
            } else if (code instanceof InvokeDynamicInsnNode dynamic) {
                handles(dynamic, who);
            }
        }
    }

    private void handles(InvokeDynamicInsnNode dynamic, String who) {
        for (Object argument : dynamic.bsmArgs) {
            if (argument instanceof Handle handle) {
                boolean isStatic = handle.getTag() == Opcodes.H_INVOKESTATIC;
                if (handle.getTag() == Opcodes.H_NEWINVOKESPECIAL) {
                    make(handle.getOwner(), who);
                }
                call(handle.getOwner(), handle.getName(), handle.getDesc(), isStatic, who);
            }
        }
    }

    private void call(String owner, String name, String types, boolean isStatic, String who) {
        if (owner.startsWith("[")) {
            return;
        }
        begin(owner, who);
        boolean isLoader = owner.equals("java/lang/System") || owner.equals("java/lang/Runtime");
        if (isLoader && LOADERS.contains(name)) {
            missing.putIfAbsent("a native library (" + owner.replace('/', '.') + "." + name + ")", who);
        }
        if (hierarchy.own(owner) == null) {
            return;
        }
        resolve(owner, name + types);
        if (!isStatic && !name.equals("<init>") && called.add(name + types)) {
            for (String one : List.copyOf(made)) {
                resolve(one, name + types);
            }
        }
    }

    /** The method of this class that a call of this name runs: its own, or the next one above. */
    private void resolve(String from, String nameAndTypes) {
        Set<String> above = hierarchy.above(from);
        above.add(from);
        for (String one : above) {
            ClassNode node = hierarchy.own(one);
            if (node != null) {
                for (MethodNode method : node.methods) {
                    if (nameAndTypes.equals(method.name + method.desc)) {
                        reach(node, method);
                    }
                }
            }
        }
    }

    /** An object of this class is made: what is called of it, and what Java and Android may call of it, is reached. */
    private void make(String name, String who) {
        begin(name, who);
        if (hierarchy.own(name) == null || !made.add(name)) {
            return;
        }
        Set<String> above = hierarchy.above(name);
        Set<String> mayBeCalled = new HashSet<>(called);
        for (String one : above) {
            Hierarchy.Known known = hierarchy.own(one) == null ? hierarchy.find(one) : null;
            if (known != null) {
                mayBeCalled.addAll(known.methods());
            }
        }
        above.add(name);
        for (String one : above) {
            ClassNode node = hierarchy.own(one);
            if (node != null) {
                for (MethodNode method : node.methods) {
                    if (!method.name.startsWith("<") && mayBeCalled.contains(method.name + method.desc)) {
                        reach(node, method);
                    }
                }
            }
        }
    }

    /** A class is initialised, with those above. */
    private void begin(String name, String who) {
        use(Type.getObjectType(name), who);
        ClassNode node = hierarchy.own(name);
        if (node == null || !begun.add(name)) {
            return;
        }
        if (node.superName != null) {
            begin(node.superName, name.replace('/', '.'));
        }
        for (MethodNode method : node.methods) {
            if (method.name.equals("<clinit>")) {
                reach(node, method);
            }
        }
    }

    private void use(Type type, String who) {
        Type element = type.getSort() == Type.ARRAY ? type.getElementType() : type;
        if (element.getSort() == Type.OBJECT && !isThere(element.getInternalName())) {
            missing.putIfAbsent(element.getClassName(), who);
        }
    }

    /** Other classes than Android's may be missing: a library may ask whether they are there. */
    private boolean isThere(String name) {
        if (hierarchy.own(name) != null) {
            return true;
        }
        String outer = name.contains("$") ? name.substring(0, name.indexOf('$')) : name;
        for (String system : SYSTEM) {
            if (name.startsWith(system)) {
                return published.contains(outer.replace('/', '.'));
            }
        }
        return true;
    }
}
