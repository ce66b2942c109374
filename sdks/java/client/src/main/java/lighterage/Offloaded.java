package lighterage;

import java.util.concurrent.Future;
import lighterage.call.Caller;
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

    /** With the result wanted in so many milliseconds, more than 0. A call that misses it throws {@link TimeIsUp}. */
    public final S deadlineMs(long milliseconds) {
        return with(caller.with(caller.options().deadlineMs(milliseconds)));
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
