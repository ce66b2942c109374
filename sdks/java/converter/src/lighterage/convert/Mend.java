package lighterage.convert;

import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Handle;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.InvokeDynamicInsnNode;
import org.objectweb.asm.tree.MethodInsnNode;
import org.objectweb.asm.tree.MethodNode;

/**
 * What dex does not say and Java wants to know: whether the owner of a method is an interface, and the types at each
 * jump, which depend on every class above.
 */
final class Mend {
    private final Hierarchy hierarchy;

    Mend(Hierarchy hierarchy) {
        this.hierarchy = hierarchy;
    }

    /** The bytes of a class that Java verifies. */
    byte[] write(ClassNode node) {
        // Methods in interfaces came with version 52, private ones of nests are what 55 allows.
        node.version = Opcodes.V1_8;
        for (MethodNode method : node.methods) {
            for (AbstractInsnNode code : method.instructions) {
                if (code instanceof MethodInsnNode call) {
                    mend(call);
                } else if (code instanceof InvokeDynamicInsnNode dynamic) {
                    dynamic.bsm = mended(dynamic.bsm);
                    for (int index = 0; index < dynamic.bsmArgs.length; index++) {
                        if (dynamic.bsmArgs[index] instanceof Handle handle) {
                            dynamic.bsmArgs[index] = mended(handle);
                        }
                    }
                }
            }
        }
        Writer writer = new Writer();
        node.accept(writer);
        return writer.toByteArray();
    }

    private void mend(MethodInsnNode call) {
        if (call.owner.startsWith("[")) {
            return;
        }
        boolean isInterface = hierarchy.isInterface(call.owner);
        if (call.getOpcode() == Opcodes.INVOKESTATIC || call.getOpcode() == Opcodes.INVOKESPECIAL) {
            call.itf = isInterface;
        } else if (call.getOpcode() == Opcodes.INVOKEVIRTUAL && isInterface) {
            call.setOpcode(Opcodes.INVOKEINTERFACE);
            call.itf = true;
        }
    }

    private Handle mended(Handle handle) {
        boolean isInterface = handle.getTag() == Opcodes.H_INVOKEINTERFACE || hierarchy.isInterface(handle.getOwner());
        return new Handle(handle.getTag(), handle.getOwner(), handle.getName(), handle.getDesc(), isInterface);
    }

    /** Finds what two classes have in common without loading either. */
    private final class Writer extends ClassWriter {
        Writer() {
            super(COMPUTE_FRAMES);
        }

        @Override
        protected String getCommonSuperClass(String one, String other) {
            return hierarchy.common(one, other);
        }
    }
}
