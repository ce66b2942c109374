package lighterage.call;

import java.util.List;

/** One offloaded method, as the annotation processor writes it out: calls and types without reflection. */
public abstract class Table {
    /** `package.Class::method`. */
    final String entry;

    /** Of this method. */
    protected Table(String entry) {
        this.entry = entry;
    }

    /** Who has loaded what stands beside the method. */
    protected ClassLoader loader() {
        return getClass().getClassLoader();
    }

    /** Calls the method here. Throws what it throws. */
    protected abstract Object run(Object[] arguments) throws Throwable;

    /** The arguments as plain values of a frame. */
    protected abstract List<Object> lower(Object[] arguments);

    /** The result that a plain value stands for. Throws IllegalArgumentException where it is none. */
    protected abstract Object lift(Object value);

    /** An exception that the method declares, by its class's name; null where it declares none of that name. */
    protected Throwable thrown(String name, String message) {
        return null;
    }
}
