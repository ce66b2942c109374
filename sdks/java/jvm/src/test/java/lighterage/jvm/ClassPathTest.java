package lighterage.jvm;

import java.io.InputStream;
import lighterage.DoesNotTravel;

/** Where the class files of a method are found. */
public final class ClassPathTest {
    /** Knows a class that nobody else does. */
    private static final class Own extends ClassLoader {
        private Own() {
            super(null);
        }

        @Override
        public InputStream getResourceAsStream(String name) {
            return name.equals("other/Own.class") ? ClassPathTest.class.getResourceAsStream("/app/Fresh.class") : null;
        }
    }

    /** The method's own loader comes first; the thread's may know nothing of it. */
    public void testTheMethodsOwnLoaderComesFirst() {
        ClassPath source = new ClassPath();
        assert source.jars("other.Own", new Own()).get("app.jar").length > 0;
        assert source.jars("app.Fresh", new Own()).get("app.jar").length > 0;
        ClassLoader usual = Thread.currentThread().getContextClassLoader();
        Thread.currentThread().setContextClassLoader(new Own());
        try {
            assert source.jars("app.Fresh", ClassPathTest.class.getClassLoader()).get("app.jar").length > 0;
            assert source.jars("app.Fresh", null).get("app.jar").length > 0;
        } finally {
            Thread.currentThread().setContextClassLoader(usual);
        }
        try {
            source.jars("other.Own", null);
            assert false;
        } catch (DoesNotTravel stays) {
            assert stays.getMessage().contains("other.Own") : stays;
        }
    }
}
