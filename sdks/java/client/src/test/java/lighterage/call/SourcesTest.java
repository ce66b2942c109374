package lighterage.call;

import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Map;
import lighterage.DoesNotTravel;
import lighterage.code.Source;

/** Code is found by whoever has loaded the method, whatever thread asks. */
public final class SourcesTest {
    /** The source of an application. */
    public static final class Given implements Source {
        /** For the service loader. */
        public Given() {}

        @Override
        public Map<String, byte[]> jars(String className, ClassLoader loader) {
            return Collections.singletonMap(className, new byte[] {7});
        }
    }

    /** As in a jar with jars in it, whose loader the threads that all share do not have. */
    public void testASourceIsFoundByTheLoaderOfTheMethod() throws IOException {
        Path folder = Files.createTempDirectory("lighterage");
        Path services = Files.createDirectories(folder.resolve("META-INF/services"));
        Path named = services.resolve(Source.class.getName());
        Files.write(named, Given.class.getName().getBytes(StandardCharsets.UTF_8));
        ClassLoader own = SourcesTest.class.getClassLoader();
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        try (URLClassLoader application = new URLClassLoader(new URL[] {folder.toUri().toURL()}, own)) {
            thread.setContextClassLoader(ClassLoader.getSystemClassLoader().getParent());
            assert Sources.jars("app.Work", application).containsKey("app.Work");
            thread.setContextClassLoader(application);
            assert Sources.jars("app.Work", own).containsKey("app.Work");
            assert Sources.jars("app.Work", null).containsKey("app.Work");
            thread.setContextClassLoader(null);
            assert Sources.jars("app.Work", application).containsKey("app.Work");
            Sources.jars("app.Work", own);
            assert false;
        } catch (DoesNotTravel none) {
            assert none.getMessage().contains("Lighterage.code") : none;
        } finally {
            thread.setContextClassLoader(before);
            Files.delete(named);
            Files.delete(services);
            Files.delete(services.getParent());
            Files.delete(folder);
        }
    }
}
