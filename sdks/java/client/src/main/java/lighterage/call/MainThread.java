package lighterage.call;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/** The thread of an Android application that draws: whoever waits in it makes the screen stand still. */
final class MainThread {
    private static final Method MAIN = method("getMainLooper");
    private static final Method OWN = method("myLooper");

    private MainThread() {}

    /** Whether this is it. Of the platform's own classes, whose names no tool changes; elsewhere it is never. */
    static boolean isThis() {
        if (MAIN == null || OWN == null) {
            return false;
        }
        try {
            Object main = MAIN.invoke(null);
            return main != null && main == OWN.invoke(null);
        } catch (IllegalAccessException | InvocationTargetException strange) {
            return false;
        }
    }

    private static Method method(String name) {
        try {
            return Class.forName("android.os.Looper").getMethod(name);
        } catch (ClassNotFoundException | NoSuchMethodException | LinkageError none) {
            return null;
        }
    }
}
