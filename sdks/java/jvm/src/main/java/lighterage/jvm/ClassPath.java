package lighterage.jvm;

import java.util.Map;
import lighterage.DoesNotTravel;
import lighterage.code.Source;

/** Code from the class path: the class of a method and all that it refers to, in one jar. */
public final class ClassPath implements Source {
    /** For the service loader. */
    public ClassPath() {}

    @Override
    public Map<String, byte[]> jars(String className) {
        ClassLoader loader = Thread.currentThread().getContextClassLoader();
        Closure closure = new Closure(loader == null ? ClassPath.class.getClassLoader() : loader);
        closure.add(className);
        if (closure.isEmpty()) {
            throw new DoesNotTravel("the class file of " + className + " is not on the class path");
        }
        return Map.of("app.jar", closure.jar());
    }
}
