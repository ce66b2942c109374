package lighterage.travel;

import java.io.IOException;
import java.util.NoSuchElementException;

/** The exceptions of the platform that methods throw without saying so, made by their names. */
final class Usual {
    private Usual() {}

    /** An exception of this class; null where it is none of these. */
    static Throwable make(String name, String message) {
        switch (name) {
            case "java.lang.ArithmeticException":
                return new ArithmeticException(message);
            case "java.lang.ArrayIndexOutOfBoundsException":
                return new ArrayIndexOutOfBoundsException(message);
            case "java.lang.StringIndexOutOfBoundsException":
                return new StringIndexOutOfBoundsException(message);
            case "java.lang.IndexOutOfBoundsException":
                return new IndexOutOfBoundsException(message);
            case "java.lang.NegativeArraySizeException":
                return new NegativeArraySizeException(message);
            case "java.lang.ClassCastException":
                return new ClassCastException(message);
            case "java.lang.NumberFormatException":
                return new NumberFormatException(message);
            case "java.lang.IllegalArgumentException":
                return new IllegalArgumentException(message);
            case "java.lang.IllegalStateException":
                return new IllegalStateException(message);
            case "java.lang.NullPointerException":
                return new NullPointerException(message);
            case "java.lang.UnsupportedOperationException":
                return new UnsupportedOperationException(message);
            case "java.lang.RuntimeException":
                return new RuntimeException(message);
            case "java.lang.AssertionError":
                return new AssertionError(message);
            case "java.util.NoSuchElementException":
                return new NoSuchElementException(message);
            case "java.io.IOException":
                return new IOException(message);
            default:
                return null;
        }
    }
}
