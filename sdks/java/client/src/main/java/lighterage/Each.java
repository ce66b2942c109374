package lighterage;

/**
 * What is done with one item of {@link Offloaded#map}: a call of the method, as in `(scaled, x) -> scaled.call(x, 2)`.
 *
 * @param <S> the method, bound to the place where this call is to run
 * @param <T> an item
 * @param <R> its result
 */
public interface Each<S, T, R> {
    /** Calls the method. Several threads do so at once. */
    R call(S method, T item) throws Exception;
}
