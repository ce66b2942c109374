package lighterage.droid.natives;

/** What Android's system does for `android.os.Process`. A unit can neither see nor change other processes. */
public final class Process {
    private Process() {}

    /** Milliseconds that all threads of this process have worked. */
    public static long getElapsedCpuTime() {
        return ProcessHandle.current().info().totalCpuDuration().map(time -> time.toMillis()).orElse(0L);
    }

    /** Threads of a unit are all alike: nothing changes. */
    public static void setThreadPriority(int priority) {}

    /** Threads of a unit are all alike: nothing changes. */
    public static void setThreadPriority(int thread, int priority) {}

    /** Zero, which is Android's default. */
    public static int getThreadPriority(int thread) {
        return 0;
    }
}
