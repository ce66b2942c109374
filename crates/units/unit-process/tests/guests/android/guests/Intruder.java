package guests;

import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.graphics.Paint;

/** Attempts to get out through the native half of Libdroid. Each says `held`, or `ESCAPED` and how, or ends its unit. */
public final class Intruder {
    private Intruder() {}

    private interface Attempt {
        Object make() throws Exception;
    }

    public static String attempt(String name) throws Exception {
        return switch (name) {
            case "files" -> files();
            case "loaders" -> loaders();
            case "signals" -> signals();
            case "picture" -> Bitmap.createBitmap(30_000, 30_000, Bitmap.Config.ARGB_8888).toString();
            case "pointer" -> pointer();
            case "text" -> String.valueOf(new Paint().measureText("x"));
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static void mustFail(String what, Attempt attempt) {
        Object made;
        try {
            made = attempt.make();
        } catch (Exception | LinkageError refused) {
            return;
        }
        if (made != null) {
            throw new AssertionError("ESCAPED: " + what + ": " + made);
        }
    }

    /** Code that is not Java opens no file either. */
    private static String files() {
        for (String file : new String[] {"/etc/shadow", "/etc/passwd", "/root/x.png", "/proc/1/environ"}) {
            mustFail(file, () -> BitmapFactory.decodeFile(file));
        }
        return "held";
    }

    /** By reflection, which no check at deployment sees. */
    private static String loaders() {
        for (String name : new String[] {"dalvik.system.DexClassLoader", "dalvik.system.DexFile", "android.app.Activity"}) {
            mustFail(name, () -> Class.forName(name));
        }
        String libdroid = System.getProperty("lighterage.libdroid");
        mustFail("a library of somebody else's", () -> {
            java.nio.file.Path copy = java.nio.file.Path.of("copy.so").toAbsolutePath();
            java.nio.file.Files.copy(java.nio.file.Path.of(libdroid), copy);
            Runtime.class.getMethod("load", String.class).invoke(Runtime.getRuntime(), copy.toString());
            return "loaded";
        });
        return "held";
    }

    private static String signals() {
        mustFail("a signal", () -> {
            Class.forName("android.os.Process").getMethod("sendSignal", int.class, int.class).invoke(null, 1, 9);
            return "sent";
        });
        return "held";
    }

    /** Has the native half work on memory that is not a picture. */
    private static String pointer() throws Exception {
        Bitmap bitmap = Bitmap.createBitmap(8, 8, Bitmap.Config.ARGB_8888);
        var field = Bitmap.class.getDeclaredField("mNativePtr");
        field.setAccessible(true);
        field.setLong(bitmap, 0x1000);
        return "ESCAPED: " + bitmap.getPixel(0, 0);
    }
}
