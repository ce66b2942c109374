package lighterage.tool;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.zip.ZipFile;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.InsnNode;
import org.objectweb.asm.tree.MethodInsnNode;
import org.objectweb.asm.tree.MethodNode;
import org.objectweb.asm.tree.VarInsnNode;

/**
 * Puts other Java in the place of methods that need Android's own virtual machine: `Graft JAR SHIMS OUT CLASS=SHIM…`.
 *
 * <p>A method of CLASS calls the static method of SHIM of its name, with the object before its parameters. A native one
 * without such a method stays native, and throws UnsatisfiedLinkError where it is called. With `CLASS~SHIM`, methods of
 * CLASS stay, and what they call of other classes is SHIM's where it has a method of that name and of those types.
 */
public final class Graft {
    private final ClassNode shim;
    private final Set<String> used = new HashSet<>();

    private Graft(ClassNode shim) {
        this.shim = shim;
    }

    public static void main(String[] arguments) throws IOException {
        Path shims = Path.of(arguments[1]);
        Path out = Path.of(arguments[2]);
        try (ZipFile jar = new ZipFile(arguments[0])) {
            for (int index = 3; index < arguments.length; index++) {
                String[] names = arguments[index].split("[=~]", 2);
                ClassNode target = read(jar, names[0]);
                ClassNode shim = new ClassNode();
                new ClassReader(Files.readAllBytes(shims.resolve(names[1] + ".class"))).accept(shim, 0);
                new Graft(shim).onto(target, arguments[index].contains("~"));
                ClassWriter writer = new ClassWriter(ClassWriter.COMPUTE_MAXS);
                target.accept(writer);
                Path file = out.resolve(names[0] + ".class");
                Files.createDirectories(file.getParent());
                Files.write(file, writer.toByteArray());
            }
        }
    }

    private static ClassNode read(ZipFile jar, String name) throws IOException {
        try (InputStream in = jar.getInputStream(jar.getEntry(name + ".class"))) {
            ClassNode node = new ClassNode();
            new ClassReader(in).accept(node, 0);
            return node;
        }
    }

    private void onto(ClassNode target, boolean isForCalls) {
        for (MethodNode method : target.methods) {
            if (isForCalls) {
                redirect(method);
            } else {
                graft(target, method);
            }
        }
        for (MethodNode method : shim.methods) {
            if ((method.access & Opcodes.ACC_PUBLIC) != 0 && !used.contains(method.name + method.desc)) {
                throw new IllegalStateException(target.name + " has no method for " + method.name + method.desc);
            }
        }
    }

    /** Has the shim answer what this method calls of other classes. */
    private void redirect(MethodNode method) {
        for (AbstractInsnNode instruction : method.instructions) {
            if (instruction instanceof MethodInsnNode call && !call.name.startsWith("<")) {
                boolean isStatic = call.getOpcode() == Opcodes.INVOKESTATIC;
                String descriptor = isStatic ? call.desc : "(L" + call.owner + ";" + call.desc.substring(1);
                if (has(call.name, descriptor)) {
                    used.add(call.name + descriptor);
                    MethodInsnNode other =
                            new MethodInsnNode(Opcodes.INVOKESTATIC, shim.name, call.name, descriptor, false);
                    method.instructions.set(call, other);
                }
            }
        }
    }

    private boolean has(String name, String descriptor) {
        return shim.methods.stream().anyMatch(one -> one.name.equals(name) && one.desc.equals(descriptor));
    }

    private void graft(ClassNode target, MethodNode method) {
        boolean isStatic = (method.access & Opcodes.ACC_STATIC) != 0;
        List<Type> types = new ArrayList<>();
        if (!isStatic) {
            types.add(Type.getObjectType(target.name));
        }
        types.addAll(List.of(Type.getArgumentTypes(method.desc)));
        Type returns = Type.getReturnType(method.desc);
        String descriptor = Type.getMethodDescriptor(returns, types.toArray(new Type[0]));
        if (method.name.startsWith("<") || !has(method.name, descriptor)) {
            return;
        }
        used.add(method.name + descriptor);
        method.access &= ~Opcodes.ACC_NATIVE;
        method.instructions.clear();
        method.tryCatchBlocks.clear();
        method.localVariables = null;
        int place = 0;
        for (Type type : types) {
            method.instructions.add(new VarInsnNode(type.getOpcode(Opcodes.ILOAD), place));
            place += type.getSize();
        }
        method.instructions.add(
                new MethodInsnNode(Opcodes.INVOKESTATIC, shim.name, method.name, descriptor, false));
        method.instructions.add(new InsnNode(returns.getOpcode(Opcodes.IRETURN)));
    }
}
