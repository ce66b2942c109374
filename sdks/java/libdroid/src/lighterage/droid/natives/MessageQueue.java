package lighterage.droid.natives;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** How a thread waits for messages: one permit for each queue, instead of a descriptor. */
public final class MessageQueue {
    private static final ConcurrentHashMap<Long, Semaphore> WAKERS = new ConcurrentHashMap<>();
    private static final AtomicLong LAST = new AtomicLong();

    private MessageQueue() {}

    public static long nativeInit() {
        long queue = LAST.incrementAndGet();
        WAKERS.put(queue, new Semaphore(0));
        return queue;
    }

    public static void nativeDestroy(long queue) {
        WAKERS.remove(queue);
    }

    /**
     * Waits for so many milliseconds, for ever if it is negative, or until it is woken. An interrupt ends no wait, as
     * on a phone, and the thread has its flag afterwards.
     */
    public static void nativePollOnce(android.os.MessageQueue object, long queue, int timeoutMs) {
        Semaphore waker = WAKERS.get(queue);
        if (waker == null) {
            return;
        }
        if (timeoutMs < 0) {
            waker.acquireUninterruptibly();
        } else {
            acquire(waker, TimeUnit.MILLISECONDS.toNanos(timeoutMs));
        }
        waker.drainPermits();
    }

    private static void acquire(Semaphore waker, long timeoutNanos) {
        long until = System.nanoTime() + timeoutNanos;
        boolean isInterrupted = false;
        while (true) {
            try {
                waker.tryAcquire(until - System.nanoTime(), TimeUnit.NANOSECONDS);
                break;
            } catch (InterruptedException early) {
                isInterrupted = true;
            }
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    public static void nativeWake(long queue) {
        Semaphore waker = WAKERS.get(queue);
        if (waker != null) {
            waker.release();
        }
    }

    public static boolean nativeIsPolling(long queue) {
        Semaphore waker = WAKERS.get(queue);
        return waker != null && waker.hasQueuedThreads();
    }
}
