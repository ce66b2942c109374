package lighterage.processor;

import java.net.URI;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticCollector;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;

/** What does not travel is an error when it is compiled, which says what to do. */
public final class RefusedTest {
    /** Each method, and what is said of it. */
    public void testWhatDoesNotTravelIsRefused() {
        Map<String, String> methods = new LinkedHashMap<>();
        methods.put("int f(int a) { return a; }", "is not static");
        methods.put("private static int f(int a) { return a; }", "is private");
        methods.put("static <T> int f(java.util.List<T> a) { return 1; }", "has type parameters");
        methods.put("static int f(int a) { return a; } static int f() { return 1; }", "name of another method");
        methods.put("static int f(java.io.InputStream a) { return 1; }", "no meaning on another machine");
        methods.put("static Object f() { return 1; }", "no meaning on another machine");
        methods.put("static int f(int[][] a) { return 1; }", "write a List");
        methods.put("static int f(String[] a) { return 1; }", "write a List");
        methods.put("static int f(java.util.List<?> a) { return 1; }", "say exactly of what");
        methods.put("static int f(java.util.Map<Integer, Integer> a) { return 1; }", "keys of a Map are texts");
        methods.put("static int f(Inner a) { return 1; } class Inner { int x; }", "belongs to an object around it");
        methods.put("static int f(P a) { return 1; } static class P { private int x; }", "field x is private");
        methods.put("static int f(P a) { return 1; } static class P { P(int x) {} }", "constructor without parameters");
        methods.put("static int f(P a) { return 1; } static class P { P next; }", "holds others of its kind");
        methods.put("static int f(Runnable a) { return 1; }", "no meaning on another machine");
        for (Map.Entry<String, String> one : methods.entrySet()) {
            String said = compiled("class C { @lighterage.Offload " + one.getKey() + " }");
            assert said.contains(one.getValue()) : one.getKey() + ": " + said;
        }
    }

    /** So is a limit that nothing fits into; a product of int may have become one. */
    public void testLimitsOfNothingAreRefused() {
        Map<String, String> limits = new LinkedHashMap<>();
        limits.put("bodyBytes = 0", "bodyBytes 0: each is to be more than 0");
        limits.put("bodyBytes = 2 << 30", "bodyBytes -2147483648: each");
        limits.put("timeMs = -1", "timeMs -1,");
        limits.put("memoryBytes = 4 * 1024 * 1024 * 1024", "memoryBytes 0 ");
        limits.put("deadlineMs = -5", "deadlineMs -5 and");
        limits.put("retries = -1", "retries -1: neither");
        for (Map.Entry<String, String> one : limits.entrySet()) {
            String marked = "@lighterage.Offload(" + one.getKey() + ") static int f() { return 1; }";
            String said = compiled("class C { " + marked + " }");
            assert said.contains(one.getValue()) : one.getKey() + ": " + said;
        }
        String most = "timeMs = Long.MAX_VALUE, memoryBytes = Long.MAX_VALUE, bodyBytes = Integer.MAX_VALUE";
        String said = compiled("class C { @lighterage.Offload(" + most + ") static int f() { return 1; } }");
        assert said.isEmpty() : said;
    }

    /** And what does travel compiles, with a class beside it. */
    public void testWhatTravelsCompiles() {
        String said = compiled("import java.util.*; public class C {\n"
                + "public enum E { A } public static class P { public int[] x; }\n"
                + "@lighterage.Offload(deadlineMs = 5)\n"
                + "public static Map<String, List<P>> f(E e, List<Double> d, P p, char c)"
                + " throws java.io.IOException { return null; }\n"
                + "static Object g() throws Exception {\n"
                + "C_Offload.F.on(\"n\").deadlineMs(3).submit(E.A, null, null, 'c');"
                + " return C_Offload.f(E.A, null, null, 'c').get(\"x\").get(0).x; } }");
        assert said.isEmpty() : said;
    }

    /** The errors of a compilation; nothing is written to disk. */
    private static String compiled(String source) {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        DiagnosticCollector<JavaFileObject> errors = new DiagnosticCollector<>();
        JavaFileObject file = new SimpleJavaFileObject(URI.create("string:///C.java"), JavaFileObject.Kind.SOURCE) {
            @Override
            public CharSequence getCharContent(boolean ignoreErrors) {
                return source;
            }
        };
        JavaCompiler.CompilationTask task = compiler.getTask(
                null,
                new Discarding(compiler.getStandardFileManager(errors, null, null)),
                errors,
                Collections.singletonList("-Xlint:none"),
                null,
                Collections.singletonList(file));
        task.setProcessors(Collections.singletonList(new OffloadProcessor()));
        task.call();
        StringBuilder said = new StringBuilder();
        for (Diagnostic<?> error : errors.getDiagnostics()) {
            if (error.getKind() == Diagnostic.Kind.ERROR) {
                said.append(error.getMessage(null)).append('\n');
            }
        }
        return said.toString();
    }
}
