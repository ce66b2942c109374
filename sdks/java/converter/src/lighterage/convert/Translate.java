package lighterage.convert;

import com.googlecode.d2j.Method;
import com.googlecode.d2j.dex.DexExceptionHandler;
import com.googlecode.d2j.dex.ExDex2Asm;
import com.googlecode.d2j.node.DexFileNode;
import com.googlecode.d2j.node.DexMethodNode;
import com.googlecode.d2j.reader.DexFileReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.tree.ClassNode;

/** One dex file to classes, by dex2jar. What it makes is not right yet: see {@link Mend}. */
final class Translate {
    private static final byte[] MAGIC = {'d', 'e', 'x', '\n'};
    /** Oldest and newest version of the format. */
    private static final int VERSION_MIN = 35;
    private static final int VERSION_MAX = 39;
    private static final int HEADER_BYTES = 0x70;
    /** Where the header says how many bytes there are. */
    private static final int SIZE_AT = 0x20;

    private Translate() {}

    /** Throws Unfit if it is no dex file, or one of another version. */
    static List<ClassNode> classes(String name, byte[] dex) {
        check(name, dex);
        DexFileNode file = new DexFileNode();
        try {
            new DexFileReader(dex).accept(file, 0);
        } catch (RuntimeException broken) {
            throw new Unfit(name + " is damaged: " + broken);
        }
        List<ClassNode> classes = new ArrayList<>();
        new ExDex2Asm(new Failures(name)).convertDex(file, internal -> {
            ClassNode node = new ClassNode();
            classes.add(node);
            return node;
        });
        return classes;
    }

    private static void check(String name, byte[] dex) {
        if (dex.length < HEADER_BYTES || !Arrays.equals(dex, 0, 4, MAGIC, 0, 4)) {
            throw new Unfit(name + " is no dex file");
        }
        String said = new String(dex, 4, 3, StandardCharsets.ISO_8859_1);
        int version = said.matches("[0-9]{3}") ? Integer.parseInt(said) : -1;
        if (version < VERSION_MIN || version > VERSION_MAX) {
            String range = "0" + VERSION_MIN + " to 0" + VERSION_MAX;
            throw new Unfit(name + " is a dex file of version " + said + ", the converter reads " + range);
        }
        int bytes = ByteBuffer.wrap(dex).order(ByteOrder.LITTLE_ENDIAN).getInt(SIZE_AT);
        if (bytes != dex.length) {
            throw new Unfit(name + " has " + dex.length + " bytes, and its header says " + bytes);
        }
    }

    /** A method that cannot be translated throws when it is called; the file as a whole goes on. */
    private record Failures(String name) implements DexExceptionHandler {
        @Override
        public void handleFileException(Exception broken) {
            throw new Unfit(name + " is damaged: " + broken);
        }

        @Override
        public void handleMethodTranslateException(
                Method method, DexMethodNode node, MethodVisitor code, Exception broken) {
            String words = method.getOwner() + method.getName() + " could not be converted: " + broken;
            code.visitTypeInsn(Opcodes.NEW, "java/lang/VerifyError");
            code.visitInsn(Opcodes.DUP);
            code.visitLdcInsn(words);
            code.visitMethodInsn(
                    Opcodes.INVOKESPECIAL, "java/lang/VerifyError", "<init>", "(Ljava/lang/String;)V", false);
            code.visitInsn(Opcodes.ATHROW);
        }
    }
}
