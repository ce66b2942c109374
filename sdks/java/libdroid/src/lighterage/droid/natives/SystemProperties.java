package lighterage.droid.natives;

import java.util.Map;

/** The properties of the system that Libdroid says it is. */
public final class SystemProperties {
    private static final Map<String, String> PROPERTIES = Map.ofEntries(
            Map.entry("ro.build.version.sdk", "35"),
            Map.entry("ro.build.version.release", "15"),
            Map.entry("ro.build.version.release_or_codename", "15"),
            Map.entry("ro.build.version.codename", "REL"),
            Map.entry("ro.build.version.all_codenames", "REL"),
            Map.entry("ro.build.version.known_codenames", "REL"),
            Map.entry("ro.build.type", "user"),
            Map.entry("ro.product.brand", "Lighterage"),
            Map.entry("ro.product.manufacturer", "Lighterage"),
            Map.entry("ro.product.model", "Libdroid"),
            Map.entry("ro.product.cpu.abilist", architecture()),
            Map.entry("ro.product.cpu.abilist64", architecture()));

    private SystemProperties() {}

    private static String architecture() {
        return System.getProperty("os.arch").equals("aarch64") ? "arm64-v8a" : "x86_64";
    }

    public static String native_get(String name, String otherwise) {
        return PROPERTIES.getOrDefault(name, otherwise);
    }

    public static int native_get_int(String name, int otherwise) {
        return (int) native_get_long(name, otherwise);
    }

    public static long native_get_long(String name, long otherwise) {
        try {
            return Long.parseLong(PROPERTIES.getOrDefault(name, ""));
        } catch (NumberFormatException other) {
            return otherwise;
        }
    }

    public static boolean native_get_boolean(String name, boolean otherwise) {
        String value = PROPERTIES.get(name);
        return value == null ? otherwise : value.equals("true") || value.equals("1");
    }

    /** A unit cannot change what its system is. */
    public static void native_set(String name, String value) {
        throw new RuntimeException("the system property " + name + " cannot be set");
    }
}
