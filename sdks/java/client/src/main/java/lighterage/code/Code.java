package lighterage.code;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import lighterage.json.Json;

/** What a node needs to run a method: its bundle, by its hash, and the limits of its units. */
public final class Code {
    /** Versions of one method that a deployment leaves on a node, its own among them. */
    public static final int VERSIONS_KEPT = 4;
    private static final int FORMAT = 2;
    /** Calls that a unit which is reused serves, and milliseconds it waits for the next. */
    private static final int REUSE_CALLS = 10_000;
    private static final int REUSE_IDLE_MS = 600_000;
    /** Characters of the readable part of a name; a node takes 63 in all. */
    private static final int SLUG_MAX = 30;

    /** On the node; says the method and the hash of all there is. */
    public final String name;
    /** What the names of all versions of the method begin with. */
    public final String family;
    /** The bundle, and its SHA-256 in hexadecimal digits. */
    public final byte[] bundle;
    public final String sha256;
    public final Limits limits;
    private final boolean isReused;

    /**
     * The code of `package.Class::method`, whose class is in one of these jars, by their names; `app.jar` is one.
     * `isReused`: its units serve many calls.
     */
    public Code(String entry, Map<String, byte[]> jars, Limits limits, boolean isReused) {
        Map<String, Object> about = new LinkedHashMap<>();
        about.put("contract", "call");
        about.put("entry", entry);
        about.put("format", FORMAT);
        about.put("requires", Collections.emptyList());
        about.put("runtime", "java");
        Tar tar = new Tar();
        tar.add("bundle.json", Json.write(about).getBytes(StandardCharsets.UTF_8));
        String[] names = jars.keySet().toArray(new String[0]);
        Arrays.sort(names);
        for (String jar : names) {
            tar.add(jar, jars.get(jar));
        }
        this.bundle = tar.bytes();
        this.sha256 = hash(bundle);
        this.limits = limits;
        this.isReused = isReused;
        this.family = "java-" + slug(entry) + "-" + hash(bytes(entry)).substring(0, 6) + "-";
        this.name = family + hash(bytes(sha256 + Json.write(limits.asManifest()) + isReused)).substring(0, 12);
    }

    /** The deployment, as `POST /v1/deployments` takes it. */
    public byte[] manifest() {
        Map<String, Object> function = new LinkedHashMap<>();
        function.put("image", sha256);
        function.put("isolation", "process");
        function.put("base", "java");
        function.put("limits", limits.asManifest());
        if (isReused) {
            Map<String, Object> units = new LinkedHashMap<>();
            units.put("reuse_calls", REUSE_CALLS);
            units.put("reuse_idle_ms", REUSE_IDLE_MS);
            function.put("units", units);
        }
        Map<String, Object> named = Collections.singletonMap(name, (Object) function);
        return bytes(Json.write(Collections.singletonMap("function", named)));
    }

    /** The method's name, in letters that a node takes. */
    private static String slug(String entry) {
        StringBuilder out = new StringBuilder();
        String tail = entry.substring(entry.lastIndexOf('.') + 1);
        for (int at = 0; at < tail.length() && out.length() < SLUG_MAX; at++) {
            char letter = Character.toLowerCase(tail.charAt(at));
            boolean isPlain = letter >= 'a' && letter <= 'z' || letter >= '0' && letter <= '9';
            if (isPlain) {
                out.append(letter);
            } else if (out.length() > 0 && out.charAt(out.length() - 1) != '-') {
                out.append('-');
            }
        }
        String slug = out.toString();
        return slug.endsWith("-") ? slug + "f" : slug.isEmpty() ? "f" : slug;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** The SHA-256 of these bytes in hexadecimal digits. */
    static String hash(byte[] bytes) {
        try {
            StringBuilder out = new StringBuilder();
            for (byte one : MessageDigest.getInstance("SHA-256").digest(bytes)) {
                out.append(Character.forDigit(one >> 4 & 15, 16)).append(Character.forDigit(one & 15, 16));
            }
            return out.toString();
        } catch (NoSuchAlgorithmException missing) {
            throw new IllegalStateException("every Java has SHA-256", missing);
        }
    }
}
