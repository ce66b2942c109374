package lighterage.droid.natives;

import libcore.io.Linux;

/** The system calls that classes of Android make to say who they are; all others throw UnsatisfiedLinkError. */
public final class LinuxCalls {
    /** As the unit's jail has it. */
    private static final int USER = 1_000;

    private LinuxCalls() {}

    public static int getpid(Linux os) {
        return (int) ProcessHandle.current().pid();
    }

    /** The thread's number in this virtual machine. */
    public static int gettid(Linux os) {
        return (int) Thread.currentThread().getId();
    }

    public static int getuid(Linux os) {
        return USER;
    }
}
