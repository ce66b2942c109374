package lighterage;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import lighterage.call.Caller;
import lighterage.call.Farm;
import lighterage.call.Function;
import lighterage.call.Options;
import lighterage.call.Table;

/**
 * An offloaded method. Generated classes extend this with `call`, `submit` and `explain` of the method's own types.
 *
 * <p>Safe for threads, and not changed once it is made: {@link #on} and {@link #deadlineMs} give another one.
 *
 * @param <S> the generated class
 */
public abstract class Offloaded<S extends Offloaded<S>> {
    private static final Farm.Known<Offloaded<?>> KNOWN = new Farm.Known<Offloaded<?>>() {
        @Override
        public boolean isHere(Offloaded<?> place) {
            return place.caller.isHere();
        }

        @Override
        public boolean isAway(Offloaded<?> place) {
            return place.caller.isAway();
        }
    };

    private final Caller caller;

    /** The method of this table, as its annotation says. */
    protected Offloaded(Table table, Options options) {
        this(new Function(table, options), options);
    }

    /** A method that is known by another name already. */
    protected Offloaded(Function function, Options options) {
        this(new Caller(function, options, Lighterage.known()));
    }

    /** The same method with other options. */
    protected Offloaded(Caller caller) {
        this.caller = caller;
    }

    /** Makes one with other options. */
    protected abstract S with(Caller other);

    /** On these nodes and nowhere else, by name (`host:port`) or address; of several on the soonest. */
    public final S on(String... nodes) {
        return with(caller.with(caller.options().on(nodes)));
    }

    /**
     * With the result wanted in so many milliseconds, more than 0. A call that misses it throws {@link TimeIsUp}, or
     * {@link NodeUnreachable} where its node was silent.
     */
    public final S deadlineMs(long milliseconds) {
        return with(caller.with(caller.options().deadlineMs(milliseconds)));
    }

    /**
     * Calls the method for each item, here and on all nodes at once, and gives the results in the order of the items:
     * `SCALED.map(many, (scaled, x) -> scaled.call(x, 2))`. With {@link #on}, on these nodes alone.
     *
     * <p>What one node does not do, another place does; one that is busy or silent gets more until nothing was done
     * anywhere for a minute. What does not travel, or breaks each connection, runs here. Throws ExecutionException with
     * what a call threw, which ends the rest, and the LighterageException of the last place where none is left. Items
     * are read one by one, as they are needed, and never by two threads at once. An interrupt ends it once the call in
     * this thread has ended; the others are not waited for.
     */
    public final <T, R> List<R> map(Iterable<? extends T> items, Each<? super S, ? super T, ? extends R> each)
            throws ExecutionException, InterruptedException {
        List<S> places = new ArrayList<>();
        for (Caller place : caller.places()) {
            places.add(with(place));
        }
        return new Farm<S, T, R>(places, KNOWN, items.iterator(), each).run();
    }

    /** Calls the method wherever it ends first. Throws what the method throws. */
    @SuppressWarnings("unchecked")
    protected final <R, E extends Throwable> R perform(Object... arguments) throws E {
        try {
            return (R) caller.call(arguments);
        } catch (Throwable thrown) {
            // It is what the method declares, or unchecked.
            throw (E) thrown;
        }
    }

    /** Calls the method in another thread. */
    protected final <R> Future<R> later(Object... arguments) {
        return caller.submit(arguments);
    }

    /** Says where a call would run. */
    protected final Explanation explained(Object... arguments) {
        return caller.explain(arguments);
    }
}
