package libcore.util;

import java.lang.ref.Cleaner;

/**
 * Frees native memory once the object that owns it is gone. Android's own uses a class that other virtual machines do
 * not have.
 */
public class NativeAllocationRegistry {
    private static final Cleaner CLEANER = Cleaner.create();

    private final long freeFunction;

    public NativeAllocationRegistry(ClassLoader loader, long freeFunction, long size) {
        this.freeFunction = freeFunction;
    }

    public static NativeAllocationRegistry createNonmalloced(ClassLoader loader, long freeFunction, long size) {
        return new NativeAllocationRegistry(loader, freeFunction, size);
    }

    public static NativeAllocationRegistry createMalloced(ClassLoader loader, long freeFunction, long size) {
        return new NativeAllocationRegistry(loader, freeFunction, size);
    }

    public static NativeAllocationRegistry createMalloced(ClassLoader loader, long freeFunction) {
        return new NativeAllocationRegistry(loader, freeFunction, 0);
    }

    public static NativeAllocationRegistry createNonmalloced(Class<?> kind, long freeFunction, long size) {
        return new NativeAllocationRegistry(kind.getClassLoader(), freeFunction, size);
    }

    public static NativeAllocationRegistry createMalloced(Class<?> kind, long freeFunction, long size) {
        return new NativeAllocationRegistry(kind.getClassLoader(), freeFunction, size);
    }

    public static NativeAllocationRegistry createMalloced(Class<?> kind, long freeFunction) {
        return new NativeAllocationRegistry(kind.getClassLoader(), freeFunction, 0);
    }

    /** Frees `pointer` when `referent` is gone, or when what is returned is run; once. */
    public Runnable registerNativeAllocation(Object referent, long pointer) {
        if (referent == null || pointer == 0) {
            throw new IllegalArgumentException(referent == null ? "referent is null" : "nativePtr is null");
        }
        long function = freeFunction;
        return CLEANER.register(referent, () -> applyFreeFunction(function, pointer))::clean;
    }

    public static native void applyFreeFunction(long freeFunction, long pointer);
}
