package lighterage.droid.natives;

/** What Android's system does for `android.os.Binder`: there is nobody else to be called by. */
public final class Binder {
    private static final int USER = 1_000;

    private Binder() {}

    /** No object of another process is freed, because there is none. */
    public static long getNativeFinalizer() {
        return 1;
    }

    public static long getNativeBBinderHolder() {
        return 0;
    }

    public static int getCallingPid() {
        return (int) ProcessHandle.current().pid();
    }

    public static int getCallingUid() {
        return USER;
    }

    public static boolean isDirectlyHandlingTransactionNative() {
        return false;
    }

    public static long clearCallingIdentity() {
        return 0;
    }

    public static void restoreCallingIdentity(long token) {}

    public static int getThreadStrictModePolicy() {
        return 0;
    }

    public static void setThreadStrictModePolicy(int policy) {}

    public static void flushPendingCommands() {}
}
