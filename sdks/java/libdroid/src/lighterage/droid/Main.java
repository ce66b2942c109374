package lighterage.droid;

import java.io.IOException;
import java.nio.file.Path;
import lighterage.frame.FrameException;

/**
 * A unit on Libdroid: loads the native half of `android.*`, then is a unit like any other.
 *
 * <p>The native half stands beside the jar of this class. It takes the list of classes whose methods it is to bring
 * from properties, in an order in which each finds those that it needs.
 */
public final class Main {
    /** Of the system. */
    private static final String CORE = String.join(
            ",",
            "android.util.Log",
            "android.os.SystemClock",
            "libcore.util.NativeAllocationRegistry",
            "android.os.Trace",
            "android.util.EventLog",
            "android.text.AndroidCharacter");

    /** Of graphics, without the package. */
    private static final String[] GRAPHICS = {
        "Color", "ColorSpace", "Matrix", "Graphics", "Bitmap", "BitmapFactory", "ByteBufferStreamAdaptor", "Canvas",
        "ColorFilter", "CreateJavaOutputStreamAdaptor", "Paint", "Path", "Region", "Shader", "PathEffect",
        "PathMeasure", "MaskFilter", "NinePatch", "Interpolator", "DrawFilter", "BitmapRegionDecoder", "Camera",
        "YuvImage", "Picture"
    };

    private Main() {}

    public static void main(String[] arguments) throws IOException, FrameException {
        load();
        lighterage.unit.Main.main(arguments);
    }

    /** Once for a virtual machine. */
    static void load() {
        System.setProperty("core_native_classes", CORE);
        System.setProperty("graphics_native_classes", "android.graphics." + String.join(",android.graphics.", GRAPHICS));
        // Read by the native half, which has neither texts nor keys here.
        System.setProperty("icu.locale.default", "en-US");
        System.setProperty("keyboard_paths", "");
        System.load(Path.of(System.getProperty("lighterage.libdroid")).toString());
    }
}
