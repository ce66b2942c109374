package lighterage.jvm;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import lighterage.DoesNotTravel;
import lighterage.frame.Array;

/** Values that a lambda captures: none becomes something else on its way. */
public final class PlainTest {
    /** A variable has a type, which its method on the node knows. */
    public void testAVariableTravelsByItsType() {
        for (Object value : new Object[] {null, true, "text", 1, 2L, 3.5, 4.5f, (short) 5, (byte) 6}) {
            assert Plain.lower(value) == value : value;
        }
        assert Plain.lower('c').equals("c");
        assert Plain.lower(new int[] {1}) instanceof Array;
    }

    /** What stands in a list or map has none: an Integer would be a Long there, and a cast would fail. */
    public void testWhatWouldBecomeSomethingElseIsRefused() {
        Object map = Collections.singletonMap("k", Arrays.asList(1L));
        List<Object> good = Arrays.asList(null, true, 1L, 2.5, "text", map);
        assert Plain.lower(good).equals(good);
        List<Object> cycle = new ArrayList<>();
        cycle.add(cycle);
        Object[] bad = {1, 2f, (short) 3, (byte) 4, 'c', Thread.State.NEW, new double[] {1}, new byte[] {1}};
        for (Object value : bad) {
            refuses(Collections.singletonList(value), "holds a " + value.getClass().getName());
            refuses(Collections.singletonMap("k", Collections.singletonList(value)), "let it hold");
        }
        refuses(cycle, "is there a cycle?");
        refuses(Collections.singletonMap(1L, 1L), "keys are texts");
        refuses(Thread.currentThread(), "java.lang.Thread");
    }

    private static void refuses(Object value, String why) {
        try {
            Plain.lower(value);
            assert false : value.getClass();
        } catch (DoesNotTravel stays) {
            assert stays.getMessage().contains(why) : stays;
        }
    }

    /** A result is of the type that the lambda's code says, or it is none. */
    public void testAResultIsOfItsType() {
        assert Plain.lift(7L, "I").equals(7) && Plain.lift(null, "Ljava/lang/Integer;") == null;
        for (String type : new String[] {"I", "J", "Z", "D", "C", "Ljava/util/List;", "Ljava/lang/Boolean;"}) {
            for (Object value : new Object[] {null, "text"}) {
                if (value == null && type.startsWith("L")) {
                    continue;
                }
                try {
                    Plain.lift(value, type);
                    assert false : type + " of " + value;
                } catch (IllegalArgumentException strange) {
                    assert strange.getMessage().contains("expected") || type.equals("C") : strange;
                }
            }
        }
    }
}
