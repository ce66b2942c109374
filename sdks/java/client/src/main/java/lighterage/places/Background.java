package lighterage.places;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** The threads of this library. None keeps a program from ending. */
public final class Background {
    /** Calls that `submit` runs at once; more wait. */
    private static final int THREADS_MAX = 64;
    /** Deployments that go on at once; more wait. Each may take minutes, so they keep nothing else waiting. */
    private static final int DEPLOYMENTS_MAX = 32;

    private static final ThreadFactory THREADS = work -> {
        Thread thread = new Thread(work, "lighterage");
        thread.setDaemon(true);
        return thread;
    };
    private static final ExecutorService POOL = pool(THREADS_MAX);
    private static final ExecutorService CHORES = pool(4);
    private static final ExecutorService DEPLOYMENTS = pool(DEPLOYMENTS_MAX);
    private static final ScheduledThreadPoolExecutor TIMER = timer();

    private Background() {}

    private static ExecutorService pool(int threads) {
        ThreadPoolExecutor pool =
                new ThreadPoolExecutor(threads, threads, 30, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), THREADS);
        pool.allowCoreThreadTimeOut(true);
        return pool;
    }

    private static ScheduledThreadPoolExecutor timer() {
        ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, THREADS);
        timer.setRemoveOnCancelPolicy(true);
        return timer;
    }

    /** Runs a call that nobody waits for in their own thread. */
    public static void call(Runnable work) {
        POOL.execute(work);
    }

    /** Puts a method on a node. */
    static void deployment(Runnable work) {
        DEPLOYMENTS.execute(work);
    }

    /** Runs what can wait: looking for nodes. */
    static void chore(Runnable work) {
        CHORES.execute(work);
    }

    /** Runs something short after so many seconds; cancel it where it is not needed. */
    public static Future<?> after(double seconds, Runnable work) {
        Callable<Object> once = () -> {
            work.run();
            return null;
        };
        return TIMER.schedule(once, (long) (seconds * 1e6), TimeUnit.MICROSECONDS);
    }
}
