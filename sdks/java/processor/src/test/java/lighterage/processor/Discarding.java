package lighterage.processor;

import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.StringWriter;
import java.io.Writer;
import java.net.URI;
import javax.tools.FileObject;
import javax.tools.ForwardingJavaFileManager;
import javax.tools.JavaFileManager;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;

/** Keeps in memory what a compiler writes: sources are compiled on, classes forgotten. */
final class Discarding extends ForwardingJavaFileManager<JavaFileManager> {
    Discarding(JavaFileManager real) {
        super(real);
    }

    @Override
    public JavaFileObject getJavaFileForOutput(Location at, String name, JavaFileObject.Kind kind, FileObject beside) {
        StringWriter text = new StringWriter();
        String file = "string:///" + name.replace('.', '/') + kind.extension;
        return new SimpleJavaFileObject(URI.create(file), kind) {
            @Override
            public Writer openWriter() {
                return text;
            }

            @Override
            public OutputStream openOutputStream() {
                return new ByteArrayOutputStream();
            }

            @Override
            public CharSequence getCharContent(boolean ignoreErrors) {
                return text.toString();
            }
        };
    }
}
