package lighterage.convert;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What an apk holds: its dex files in order, and what stands beside its classes. */
final class Apk {
    private static final String MANIFEST = "AndroidManifest.xml";
    /** Folders and files that belong to Android, and not to the classes. */
    private static final String[] ANDROID = {"res/", "lib/", "assets/", "META-INF/", "resources.arsc", MANIFEST};
    private static final String DEX = "classes.*\\.dex";

    final List<byte[]> dex = new ArrayList<>();
    final Map<String, byte[]> files = new LinkedHashMap<>();

    /** Throws Unfit if it is no apk that can run alone. */
    Apk(byte[] zip) {
        Map<String, byte[]> members = Zip.read("the apk", zip, name -> true);
        if (!members.containsKey("classes.dex")) {
            throw new Unfit(why(members));
        }
        // As Android does it: the next number follows, or it is the last.
        for (int number = 1; members.containsKey(name(number)); number++) {
            dex.add(members.remove(name(number)));
        }
        for (Map.Entry<String, byte[]> member : members.entrySet()) {
            if (member.getKey().matches(DEX)) {
                throw new Unfit("the apk has " + member.getKey() + " and none before it: a part of it is missing");
            }
            if (!isAndroids(member.getKey())) {
                files.put(member.getKey(), member.getValue());
            }
        }
    }

    private static String name(int number) {
        return number == 1 ? "classes.dex" : "classes" + number + ".dex";
    }

    private static String why(Map<String, byte[]> members) {
        if (!members.containsKey(MANIFEST)) {
            return "there is no classes.dex in it, and no " + MANIFEST + ": it is no apk";
        }
        if (members.keySet().stream().anyMatch(name -> name.endsWith(".apk"))) {
            return "there are apks in it: give the one that is the base";
        }
        return "there is no classes.dex in the apk: it is a part of a split app without its base, or it is packed";
    }

    private static boolean isAndroids(String name) {
        for (String android : ANDROID) {
            if (name.startsWith(android)) {
                return !name.startsWith("META-INF/services/");
            }
        }
        return false;
    }
}
