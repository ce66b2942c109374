package android.os;

/** Stands where Android's class does, and says that the thread which was named is the main one. */
public final class Looper {
    private static final ThreadLocal<Looper> OWN = new ThreadLocal<>();
    private static Looper main;

    private Looper() {}

    /** This thread draws, from now on. */
    public static void prepareMainLooper() {
        main = new Looper();
        OWN.set(main);
    }

    public static Looper getMainLooper() {
        return main;
    }

    public static Looper myLooper() {
        return OWN.get();
    }
}
