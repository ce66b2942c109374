package lighterage.code;

import java.util.Map;

/** Where the class files of a method are found on this machine. */
public interface Source {
    /**
     * The jars that a node needs to run a method of this class: `app.jar`, and perhaps `libs/NAME.jar`.
     *
     * <p>`loader` is that of what stands beside the class; null: the platform's. Throws DoesNotTravel where they cannot
     * be had.
     */
    Map<String, byte[]> jars(String className, ClassLoader loader);
}
