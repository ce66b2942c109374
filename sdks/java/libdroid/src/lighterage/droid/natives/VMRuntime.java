package lighterage.droid.natives;

import java.lang.reflect.Array;

/** What Android's virtual machine does for `dalvik.system.VMRuntime`. */
public final class VMRuntime {
    private VMRuntime() {}

    public static Object newUnpaddedArray(dalvik.system.VMRuntime runtime, Class<?> kind, int length) {
        return Array.newInstance(kind, length);
    }

    public static boolean is64Bit(dalvik.system.VMRuntime runtime) {
        return true;
    }

    public static String vmLibrary(dalvik.system.VMRuntime runtime) {
        return "libjvm.so";
    }

    public static void setTargetSdkVersionNative(dalvik.system.VMRuntime runtime, int version) {}

    public static void registerNativeAllocation(dalvik.system.VMRuntime runtime, long bytes) {}

    public static void registerNativeFree(dalvik.system.VMRuntime runtime, long bytes) {}
}
