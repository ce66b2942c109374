package lighterage.jvm;

import java.io.Serializable;
import java.util.concurrent.Callable;

/**
 * A lambda that can say which method it is, and which variables it uses.
 *
 * @param <R> what it returns
 */
@FunctionalInterface
public interface Task<R> extends Callable<R>, Serializable {}
