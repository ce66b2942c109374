package lighterage.places;

import java.io.Closeable;
import java.io.IOException;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Ends a request from another thread. A node stops the unit of a call whose connection closes. Safe for threads. */
public final class Cancel {
    /** Longer than anybody waits, and short enough for a clock of nanoseconds. */
    private static final double FOREVER_SECONDS = 1e9;

    private Closeable connection;
    private boolean isCancelled;

    /** Ends the request that is on its way, and any that would begin. */
    public synchronized void cancel() {
        isCancelled = true;
        close();
    }

    /** Whether the caller no longer wants the reply. */
    public synchronized boolean isCancelled() {
        return isCancelled;
    }

    /** Whether a request is on its way, or what comes before it is waited for. */
    public synchronized boolean isBusy() {
        return connection != null;
    }

    /** Waits for what comes before a request, until a time of {@link Clock}. Throws CancellationException. */
    void await(CountDownLatch ready, double until) {
        watch(ready::countDown);
        boolean isInterrupted = false;
        try {
            while (true) {
                double left = Math.min(Math.max(until - Clock.now(), 0.0), FOREVER_SECONDS);
                try {
                    ready.await((long) (left * 1e9), TimeUnit.NANOSECONDS);
                    break;
                } catch (InterruptedException early) {
                    // Who waits for a node's reply is not disturbed either: that is what `cancel` is for.
                    isInterrupted = true;
                }
            }
        } finally {
            unwatch();
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
        if (isCancelled()) {
            throw new CancellationException();
        }
    }

    synchronized void watch(Closeable open) {
        if (isCancelled) {
            throw new CancellationException();
        }
        connection = open;
    }

    synchronized void unwatch() {
        connection = null;
    }

    private void close() {
        if (connection != null) {
            try {
                connection.close();
            } catch (IOException closed) {
                return;
            }
        }
    }
}
