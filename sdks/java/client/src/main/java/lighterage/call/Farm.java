package lighterage.call;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.ExecutionException;
import lighterage.CallTooLarge;
import lighterage.DoesNotTravel;
import lighterage.Each;
import lighterage.LighterageException;
import lighterage.NoNode;
import lighterage.NodeRefused;
import lighterage.OnMainThread;
import lighterage.RemoteException;
import lighterage.ReplyBroken;
import lighterage.TimeIsUp;
import lighterage.places.Background;
import lighterage.places.Clock;

/**
 * Many calls at several places at once: each place takes the next item as soon as it is done with the last.
 *
 * <pre>
 * items ── next ──▶ a worker at a place ──▶ results, in the order of the items
 *   ▲                    └ the node did not do it: the worker ends; or rests, where the node is busy or silent
 *   └──── put back ◀─────┘ for anybody; or for here alone, where it does not travel or breaks each connection
 * </pre>
 *
 * <p>The thread that asks is one of the workers, so there is progress however many others are busy.
 *
 * @param <S> the method, bound to a place
 * @param <T> an item
 * @param <R> its result
 */
public final class Farm<S, T, R> {
    /** Connections that one item may break before it is taken for the reason. */
    private static final int BREAKS_MAX = 5;
    /** Milliseconds until a node that is full is asked again, and between two looks at one that is silent. */
    private static final long PAUSE_MS = 50;
    /** Seconds for which nodes that are full or silent are waited for while nothing is done anywhere. */
    private static final double STUCK_SECONDS = 60.0;

    private final List<S> places;
    private final Known<? super S> known;
    private final Iterator<? extends T> items;
    private final Each<? super S, ? super T, ? extends R> each;
    private final Deque<Item<T>> back = new ArrayDeque<>();
    /** Items that nodes cannot do. */
    private final Deque<Item<T>> onlyHere = new ArrayDeque<>();
    private final List<R> results = new ArrayList<>();
    private int workers;
    private int workersHere;
    private int running;
    /** Since when places have said that they are full or silent, and none did anything. */
    private double stuckSince = Double.NaN;
    /** For tests. */
    double stuckSeconds = STUCK_SECONDS;
    private LighterageException refused;
    private Throwable thrown;

    /** What places are. */
    public interface Known<S> {
        /** Whether it is no node. */
        boolean isHere(S place);

        /** Whether it is a node that failed lately and should be left alone. */
        boolean isAway(S place);
    }

    /** One worker for each of these places, of which there is one at least. */
    public Farm(
            List<S> places,
            Known<? super S> known,
            Iterator<? extends T> items,
            Each<? super S, ? super T, ? extends R> each) {
        this.places = places;
        this.known = known;
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
        for (S place : places) {
            workersHere += known.isHere(place) ? 1 : 0;
        }
        for (S place : places.subList(1, places.size())) {
            Background.call(() -> {
                try {
                    work(place);
                } catch (InterruptedException ended) {
                    end(ended);
                }
            });
        }
        try {
            return done();
        } catch (InterruptedException ended) {
            end(ended);
            throw ended;
        }
    }

    /** Works too, then waits for the others. */
    private List<R> done() throws ExecutionException, InterruptedException {
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

    /** Nothing more is wanted: the workers end. */
    private synchronized void end(Throwable why) {
        thrown = thrown == null ? why : thrown;
        notifyAll();
    }

    /** Whether everything is done, or nothing more is wanted. */
    private boolean isOver() {
        return thrown != null || back.isEmpty() && onlyHere.isEmpty() && running == 0 && !hasNext();
    }

    /** Whether places were waited for long enough. */
    private boolean isStuck() {
        return Clock.now() - stuckSince > stuckSeconds;
    }

    private boolean hasNext() {
        try {
            return items.hasNext();
        } catch (RuntimeException | Error own) {
            thrown = own;
            return false;
        }
    }

    private void work(S place) throws InterruptedException {
        boolean isHere = known.isHere(place);
        try {
            boolean goesOn = true;
            while (goesOn) {
                Item<T> item = next(isHere);
                goesOn = item != null && does(place, isHere, item);
            }
        } finally {
            synchronized (this) {
                workers--;
                workersHere -= isHere ? 1 : 0;
                notifyAll();
            }
        }
    }

    /** Null once all is done. Until then what others put back needs somebody. */
    private synchronized Item<T> next(boolean isHere) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        try {
            while (thrown == null && !hasPutBack(isHere) && running > 0 && !hasNext()) {
                wait();
            }
            if (thrown != null || !hasPutBack(isHere) && !hasNext()) {
                return null;
            }
            Item<T> item = isHere && !onlyHere.isEmpty() ? onlyHere.poll() : back.poll();
            if (item == null) {
                item = new Item<>(results.size(), items.next());
                results.add(null);
            }
            running++;
            return item;
        } catch (RuntimeException | Error own) {
            thrown = own;
            return null;
        }
    }

    private boolean hasPutBack(boolean isHere) {
        return !back.isEmpty() || isHere && !onlyHere.isEmpty();
    }

    /** Whether the place can do more. */
    private boolean does(S place, boolean isHere, Item<T> item) throws InterruptedException {
        R result = null;
        LighterageException not = null;
        Throwable own = null;
        try {
            result = each.call(place, item.value);
        } catch (RemoteException ofTheCall) {
            own = ofTheCall;
        } catch (LighterageException ofThePlace) {
            // A deployment that takes longer than a call may goes on.
            boolean isLate = ofThePlace instanceof TimeIsUp && !ofThePlace.isOfDeployment();
            own = isLate ? ofThePlace : null;
            not = isLate ? null : ofThePlace;
        } catch (Throwable ofTheCall) {
            own = ofTheCall;
        }
        synchronized (this) {
            running--;
            item.breaks += not instanceof ReplyBroken ? 1 : 0;
            boolean isAtHome = not instanceof CallTooLarge || not instanceof DoesNotTravel;
            boolean stays = isAtHome || not != null && item.breaks > BREAKS_MAX;
            if (own != null || stays && (isHere || workersHere == 0)) {
                end(own != null ? own : not);
            } else if (not != null) {
                refused = not;
                (stays ? onlyHere : back).add(item);
            } else {
                results.set(item.number, result);
                stuckSince = Double.NaN;
            }
            notifyAll();
            return not == null || isAtHome || isForNow(not) && rests(place);
        }
    }

    /** Whether the place may do it later. */
    private static boolean isForNow(LighterageException not) {
        boolean isBusy = not instanceof NodeRefused && ((NodeRefused) not).isBusy();
        return isBusy || Attempt.isOfConnection(not) || not instanceof TimeIsUp;
    }

    /** Leaves a place alone that is full or silent. False where nothing was done anywhere for too long. */
    private boolean rests(S place) throws InterruptedException {
        double began = Clock.now();
        stuckSince = Double.isNaN(stuckSince) ? began : stuckSince;
        while (!isOver() && !isStuck() && (Clock.now() - began < PAUSE_MS / 1e3 || known.isAway(place))) {
            wait(PAUSE_MS);
        }
        return !isStuck();
    }

    private static final class Item<T> {
        private final int number;
        private final T value;
        /** How often a connection broke off while it was done. */
        private int breaks;

        Item(int number, T value) {
            this.number = number;
            this.value = value;
        }
    }
}
