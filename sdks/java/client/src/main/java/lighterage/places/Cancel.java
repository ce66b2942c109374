package lighterage.places;

import java.io.Closeable;
import java.io.IOException;
import java.util.concurrent.CancellationException;

/** Ends a request from another thread. A node stops the unit of a call whose connection closes. Safe for threads. */
public final class Cancel {
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

    /** Whether a request is on its way. */
    public synchronized boolean isBusy() {
        return connection != null;
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
