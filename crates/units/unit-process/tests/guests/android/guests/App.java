package guests;

import android.app.Activity;
import android.content.Context;
import android.graphics.Bitmap;
import android.graphics.Color;
import android.os.Bundle;
import android.util.Log;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.IntUnaryOperator;
import java.util.stream.IntStream;

/** An app as a device has it: most of it is for the device, and some of its methods could run anywhere. */
public class App extends Activity {
    private Bundle state;

    @Override
    protected void onCreate(Bundle saved) {
        super.onCreate(saved);
        state = saved;
        System.loadLibrary("app");
    }

    native int decode(byte[] bytes);

    /** Methods that a node can run. */
    public static final class Work {
        private int base;
        private Map<String, Integer> counts = new TreeMap<>();

        enum Step { DOUBLE, NEGATE }

        /** Static methods of interfaces, lambdas, a switch over texts, an enum, `finally`. */
        static List<Integer> numbers(int count, String order, Step step) {
            IntUnaryOperator work = step == Step.DOUBLE ? number -> number * 2 : number -> -number;
            List<Integer> numbers = new java.util.ArrayList<>();
            try {
                IntStream.rangeClosed(1, count).map(work).forEach(numbers::add);
            } finally {
                switch (order) {
                    case "up":
                        numbers.sort(Comparator.naturalOrder());
                        break;
                    case "down":
                        numbers.sort(Comparator.comparing(number -> -number));
                        break;
                    default:
                        throw new IllegalArgumentException("order " + order);
                }
            }
            return numbers;
        }

        /** On an object that came with the call. */
        int add(String name, int more) {
            return base + counts.merge(name, more, Integer::sum);
        }

        /** The mean brightness of a picture that is drawn here. */
        static double brightness(int width, int height, int grey) {
            Bitmap bitmap = Bitmap.createBitmap(width, height, Bitmap.Config.ARGB_8888);
            bitmap.eraseColor(Color.rgb(grey, grey, grey));
            int[] pixels = new int[width * height];
            bitmap.getPixels(pixels, 0, width, 0, 0, width, height);
            double sum = 0;
            for (int pixel : pixels) {
                sum += Color.red(pixel);
            }
            Log.i("App", "drawn");
            return sum / pixels.length;
        }
    }

    static String name(Context context) {
        return context.getPackageName();
    }

    static String title() {
        return new App().getTitle().toString();
    }

    static int decoded() {
        return new Native().decode(new byte[0]);
    }

    static String loads(String name) {
        System.load("/data/" + name);
        return "loaded";
    }

    static Object loader(String name) throws Exception {
        return new dalvik.system.DexClassLoader(name, "/", null, App.class.getClassLoader()).loadClass("a.B");
    }

    /** Whose method is in a library of the apk. */
    static final class Native {
        native int decode(byte[] bytes);
    }
}
