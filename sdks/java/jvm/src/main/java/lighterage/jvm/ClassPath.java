package lighterage.jvm;

import java.util.Map;
import lighterage.DoesNotTravel;
import lighterage.code.Source;

/** Code from the class path: the class of a method and all that it refers to, in one jar. */
public final class ClassPath implements Source {
    /** For the service loader. */
    public ClassPath() {}

    /** As the method's own loader finds them: that of the thread may know nothing of the application. */
    @Override
    public Map<String, byte[]> jars(String className, ClassLoader loader) {
        ClassLoader ofThread = Thread.currentThread().getContextClassLoader();
        for (ClassLoader one : new ClassLoader[] {loader, ofThread, ClassPath.class.getClassLoader()}) {
            if (one == null) {
                continue;
            }
            Closure closure = new Closure(one);
            closure.add(className);
            if (!closure.isEmpty()) {
                return Map.of("app.jar", closure.jar());
            }
        }
        throw new DoesNotTravel("the class file of " + className + " is not on the class path");
    }
}
