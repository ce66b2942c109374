package lighterage.jvm;

import java.lang.invoke.MethodHandleInfo;
import java.lang.invoke.SerializedLambda;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import lighterage.DoesNotTravel;
import lighterage.Explanation;
import lighterage.Offloaded;
import lighterage.call.Caller;
import lighterage.call.Function;
import lighterage.call.Options;
import lighterage.call.Table;
import lighterage.code.Limits;

/**
 * A lambda that runs wherever it ends first, without an annotation: on a JVM only, and by reflection.
 *
 * <pre>{@code
 * double[] x = Lambda.of(() -> Numeric.scaled(numbers, 2)).on("node:8701").call();
 * }</pre>
 *
 * <p>The variables that it uses travel: numbers, truth values, characters, texts, enums, `byte[]`, `int[]`, `long[]`,
 * `float[]`, `double[]`, lists, and maps with texts as keys. Lists and maps hold `Long`, `Double`, `Boolean`, `String`,
 * lists and maps. The result is of one of these types too, as the lambda's own code says it; of lists and maps the
 * elements come back as those that they may hold. A lambda that uses its object (`this`) does not travel.
 *
 * <p>After D8 a lambda is a class without a name for its method, so on Android methods are marked with `@Offload`.
 *
 * @param <R> what it returns
 */
public final class Lambda<R> extends Offloaded<Lambda<R>> {
    private static final Limits LIMITS = new Limits(300_000, 256L << 20, 64 << 20);
    private static final Options OPTIONS = Options.of(0, 1, true, LIMITS, false);
    /** By the method that a lambda is: its code is sent once. */
    private static final Map<String, Function> FUNCTIONS = new ConcurrentHashMap<>();

    private final Object[] arguments;

    private Lambda(Function function, Object[] arguments) {
        super(function, OPTIONS);
        this.arguments = arguments;
    }

    private Lambda(Caller caller, Object[] arguments) {
        super(caller);
        this.arguments = arguments;
    }

    /** Takes a lambda, with its variables as they are now. Throws {@link DoesNotTravel} where it cannot be sent. */
    public static <R> Lambda<R> of(Task<R> task) {
        SerializedLambda said = said(task);
        if (said.getImplMethodKind() != MethodHandleInfo.REF_invokeStatic) {
            throw new DoesNotTravel("the lambda uses the object around it: copy what it needs of it into variables");
        }
        String entry = said.getImplClass().replace('/', '.') + "::" + said.getImplMethodName();
        String result = said.getImplMethodSignature();
        Function function = FUNCTIONS.computeIfAbsent(entry, name -> {
            String type = result.substring(result.indexOf(')') + 1);
            return new Function(new Captured(name, type, task.getClass().getClassLoader()), OPTIONS);
        });
        // The task itself stands first, for the run here.
        Object[] arguments = new Object[1 + said.getCapturedArgCount()];
        arguments[0] = task;
        for (int at = 1; at < arguments.length; at++) {
            arguments[at] = said.getCapturedArg(at - 1);
        }
        return new Lambda<>(function, arguments);
    }

    private static SerializedLambda said(Task<?> task) {
        try {
            Method replace = task.getClass().getDeclaredMethod("writeReplace");
            replace.setAccessible(true);
            return (SerializedLambda) replace.invoke(task);
        } catch (ReflectiveOperationException | ClassCastException other) {
            throw new DoesNotTravel("a task is a lambda or a reference to a static method, not a class of its own");
        }
    }

    @Override
    protected Lambda<R> with(Caller other) {
        return new Lambda<>(other, arguments);
    }

    /** Runs it wherever it ends first. Throws what it throws. */
    public R call() throws Exception {
        return this.<R, Exception>perform(arguments);
    }

    /** The same in another thread. */
    public Future<R> submit() {
        return later(arguments);
    }

    /** Where it would run, and why. */
    public Explanation explain() {
        return explained(arguments);
    }

    /** What a lambda does and how its variables travel. */
    private static final class Captured extends Table {
        private final String result;
        private final ClassLoader loader;

        private Captured(String entry, String result, ClassLoader loader) {
            super(entry);
            this.result = result;
            this.loader = loader;
        }

        @Override
        protected ClassLoader loader() {
            return loader;
        }

        @Override
        protected Object run(Object[] arguments) throws Exception {
            return ((Task<?>) arguments[0]).call();
        }

        @Override
        protected List<Object> lower(Object[] arguments) {
            List<Object> lowered = new ArrayList<>();
            for (int at = 1; at < arguments.length; at++) {
                lowered.add(Plain.lower(arguments[at]));
            }
            return lowered;
        }

        @Override
        protected Object lift(Object value) {
            return Plain.lift(value, result);
        }
    }
}
