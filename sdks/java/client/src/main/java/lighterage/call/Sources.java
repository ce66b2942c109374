package lighterage.call;

import java.util.Collections;
import java.util.Iterator;
import java.util.Map;
import java.util.ServiceLoader;
import lighterage.DoesNotTravel;
import lighterage.code.Source;

/** Where code is found: the jar that was named, else the class path, which the module `lighterage-jvm` knows. */
public final class Sources {
    private static volatile byte[] named;
    private static volatile int version;

    private Sources() {}

    /** All methods are in this jar; null: they are looked for. Takes effect for methods that were not sent yet. */
    public static synchronized void name(byte[] jar) {
        named = jar == null ? null : jar.clone();
        version++;
    }

    /** Another number each time that a jar was named: what could not be had before may be there now. */
    static int version() {
        return version;
    }

    static Map<String, byte[]> jars(String className, ClassLoader loader) {
        byte[] jar = named;
        if (jar != null) {
            return Collections.singletonMap("app.jar", jar);
        }
        // The loader of a thread may know nothing of the application: of threads that many share it does not.
        ClassLoader ofThread = Thread.currentThread().getContextClassLoader();
        for (ClassLoader one : new ClassLoader[] {loader, ofThread, Source.class.getClassLoader()}) {
            Iterator<Source> found = one == null ? null : ServiceLoader.load(Source.class, one).iterator();
            if (found != null && found.hasNext()) {
                return found.next().jars(className, loader);
            }
        }
        throw new DoesNotTravel("the class files of " + className + " cannot be had: name a jar of them with"
                + " Lighterage.code, or on a JVM add lighterage-jvm to the class path");
    }
}
