package lighterage.call;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.ExecutionException;
import lighterage.Each;
import lighterage.LighterageException;
import lighterage.NoNode;
import lighterage.OnMainThread;
import lighterage.RemoteException;
import lighterage.TimeIsUp;
import lighterage.places.Background;

/**
 * Many calls at several places at once: each place takes the next item as soon as it is done with the last.
 *
 * <pre>
 * items ── next ──▶ a worker at a place ──▶ results, in the order of the items
 *   ▲                    └ the node did not do it: the worker ends
 *   └──── put back ◀─────┘
 * </pre>
 *
 * <p>The thread that asks is one of the workers, so there is progress however many others are busy.
 *
 * @param <S> the method, bound to a place
 * @param <T> an item
 * @param <R> its result
 */
public final class Farm<S, T, R> {
    private final List<S> places;
    private final Iterator<? extends T> items;
    private final Each<? super S, ? super T, ? extends R> each;
    private final Deque<Item<T>> back = new ArrayDeque<>();
    private final List<R> results = new ArrayList<>();
    private int workers;
    private int running;
    private LighterageException refused;
    private Throwable thrown;

    /** One worker for each of these places, of which there is one at least. */
    public Farm(List<S> places, Iterator<? extends T> items, Each<? super S, ? super T, ? extends R> each) {
        this.places = places;
        this.items = items;
        this.each = each;
    }

    /**
     * The results. Throws ExecutionException with what a call threw, and the LighterageException of the last place
     * where no place does what is left; calls that still run then are not waited for.
     */
    public List<R> run() throws ExecutionException, InterruptedException {
        if (MainThread.isThis()) {
            throw new OnMainThread("map was called on the main thread, which would stand still; "
                    + "use another thread");
        }
        if (places.isEmpty()) {
            throw new NoNode("no node is known");
        }
        workers = places.size();
        for (S place : places.subList(1, places.size())) {
            Background.call(() -> work(place));
        }
        work(places.get(0));
        synchronized (this) {
            while (workers > 0 && !isOver()) {
                wait();
            }
            if (thrown != null) {
                throw new ExecutionException(thrown);
            }
            if (!isOver()) {
                throw refused;
            }
            return new ArrayList<>(results);
        }
    }

    /** Whether everything is done, or nothing more is wanted. */
    private boolean isOver() {
        return thrown != null || back.isEmpty() && running == 0 && !hasNext();
    }

    private boolean hasNext() {
        try {
            return items.hasNext();
        } catch (RuntimeException | Error own) {
            thrown = own;
            return false;
        }
    }

    private void work(S place) {
        boolean goesOn = true;
        while (goesOn) {
            Item<T> item = next();
            goesOn = item != null && does(place, item);
        }
        synchronized (this) {
            workers--;
            notifyAll();
        }
    }

    /** Null once all is done. Until then what others put back needs somebody. */
    private synchronized Item<T> next() {
        try {
            while (thrown == null && back.isEmpty() && running > 0 && !hasNext()) {
                wait();
            }
            if (thrown != null || back.isEmpty() && !hasNext()) {
                return null;
            }
            Item<T> item = back.poll();
            if (item == null) {
                item = new Item<>(results.size(), items.next());
                results.add(null);
            }
            running++;
            return item;
        } catch (InterruptedException | RuntimeException | Error own) {
            thrown = own;
            return null;
        }
    }

    /** Whether the place can do more. */
    private boolean does(S place, Item<T> item) {
        R result = null;
        LighterageException not = null;
        Throwable own = null;
        try {
            result = each.call(place, item.value);
        } catch (TimeIsUp | RemoteException ofTheCall) {
            own = ofTheCall;
        } catch (LighterageException ofThePlace) {
            not = ofThePlace;
        } catch (Throwable ofTheCall) {
            own = ofTheCall;
        }
        synchronized (this) {
            running--;
            if (own != null) {
                thrown = thrown == null ? own : thrown;
            } else if (not != null) {
                refused = not;
                back.add(item);
            } else {
                results.set(item.number, result);
            }
            notifyAll();
            return not == null;
        }
    }

    private static final class Item<T> {
        private final int number;
        private final T value;

        Item(int number, T value) {
            this.number = number;
            this.value = value;
        }
    }
}
