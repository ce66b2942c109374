package lighterage;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * A static method that runs wherever it ends first: here, or on a node nearby.
 *
 * <p>The annotation processor writes the class `Name_Offload` beside the class `Name` with a method of the same name
 * and parameters, and a constant in capital letters for `submit`, `explain`, `on` and `deadlineMs`:
 *
 * <pre>{@code
 * final class Numeric {
 *     @Offload
 *     static double[] solve(double[] matrix, int n) { … }
 * }
 *
 * double[] x = Numeric_Offload.solve(matrix, n);                        // decides
 * Future<double[]> later = Numeric_Offload.SOLVE.submit(matrix, n);     // in another thread
 * System.out.println(Numeric_Offload.SOLVE.explain(matrix, n));         // says why
 * }</pre>
 *
 * <p>The method runs alone on the node: static fields have there what their class gives them, and what it changes
 * beside its result stays there. Parameters and result are numbers, truth values, characters, texts, enums, arrays of
 * numbers, `List` and `Map` with texts as keys of these, records, and classes with fields that are not private and a
 * constructor without parameters. Anything else is an error when it is compiled.
 */
@Documented
@Retention(RetentionPolicy.SOURCE)
@Target(ElementType.METHOD)
public @interface Offload {
    /** Milliseconds in which the result is wanted; 0: whenever it comes. */
    long deadlineMs() default 0;

    /** Other nodes that are tried when one fails. */
    int retries() default 1;

    /** Whether it may run here at all. */
    boolean local() default true;

    /**
     * Whether one unit serves many calls, one after the other, which saves the start of a virtual machine for each.
     * Static fields keep then what an earlier call of this method has left in them, by whichever device.
     */
    boolean reuse() default false;

    /** Wall time of one call on a node, in milliseconds. */
    long timeMs() default 300_000;

    /** The heap on a node, in bytes. */
    long memoryBytes() default 256 << 20;

    /** Bytes of the arguments, and of the result. */
    int bodyBytes() default 64 << 20;
}
