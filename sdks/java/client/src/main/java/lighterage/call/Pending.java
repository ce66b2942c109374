package lighterage.call;

import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import lighterage.places.Cancel;

/** A call that runs in another thread. Cancelled, it ends on its node too; one that runs here goes on. */
final class Pending<R> extends FutureTask<R> {
    private final Cancel cancel;

    Pending(Callable<R> work, Cancel cancel) {
        super(work);
        this.cancel = cancel;
    }

    @Override
    public boolean cancel(boolean mayInterrupt) {
        boolean isCancelled = super.cancel(mayInterrupt);
        if (isCancelled) {
            cancel.cancel();
        }
        return isCancelled;
    }
}
