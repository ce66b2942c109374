package lighterage.places;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;

/** A method on its way to a node, for all who wait for it. */
final class Deployment extends FutureTask<Void> {
    /** When it was asked for, of {@link Clock}. */
    final double began = Clock.now();
    /** Null once it has ended and they have been told. */
    private List<Runnable> waiting = new ArrayList<>();

    Deployment(Runnable work) {
        super(work, null);
    }

    /** Does something short once it has ended, which may be at once. */
    void then(Runnable told) {
        synchronized (this) {
            if (waiting != null) {
                waiting.add(told);
                return;
            }
        }
        told.run();
    }

    /** Somebody has gone away. */
    synchronized void forget(Runnable told) {
        if (waiting != null) {
            waiting.remove(told);
        }
    }

    @Override
    protected void done() {
        List<Runnable> all;
        synchronized (this) {
            all = waiting;
            waiting = null;
        }
        for (Runnable told : all) {
            told.run();
        }
    }

    /** What it threw, once it has ended, for whoever only takes note of it; null: nothing. */
    RuntimeException problem() {
        try {
            see();
            return null;
        } catch (RuntimeException thrown) {
            return thrown;
        } catch (Error thrown) {
            return new IllegalStateException(thrown);
        }
    }

    /** Throws what it threw, once it has ended. */
    void see() {
        boolean isInterrupted = Thread.interrupted();
        try {
            get();
        } catch (InterruptedException never) {
            throw new AssertionError("a deployment that has ended is not waited for", never);
        } catch (ExecutionException thrown) {
            if (thrown.getCause() instanceof Error) {
                throw (Error) thrown.getCause();
            }
            throw (RuntimeException) thrown.getCause();
        } finally {
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
