package lighterage.droid.natives;

/** What Android's virtual machine does for `android.system.OsConstants`. */
public final class OsConstants {
    private OsConstants() {}

    /** No system call is made through Libdroid, so its constants stay as they are written: zero. */
    public static void initConstants() {}
}
