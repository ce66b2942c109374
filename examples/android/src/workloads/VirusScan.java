package workloads;

import android.util.Base64;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** Looks for signatures of viruses in files: EICAR's test string, and as many generated ones as are wanted. */
public final class VirusScan {
    /** The file of 68 bytes that every scanner finds; in two parts, so that none finds this source. */
    private static final String EICAR =
            "X5O!P%@AP[4\\PZX54(P^)7CC)7}$EICAR-STANDARD-" + "ANTIVIRUS-TEST-FILE!$H+H*";
    private static final int SIGNATURES = 2_000;
    private static final int SIGNATURES_MAX = 5_000;
    private static final int FOUND_MAX = 10_000;
    private static final int SMALL_BYTES = 256 << 10;
    private static final int MEDIUM_BYTES = 2 << 20;
    private static final int LARGE_BYTES = 16 << 20;
    private static final int PLANTED = 7;

    private VirusScan() {}

    public static String small() {
        return scan(file(SMALL_BYTES, PLANTED), SIGNATURES);
    }

    public static String medium() {
        return scan(file(MEDIUM_BYTES, PLANTED), SIGNATURES);
    }

    public static String large() {
        return scan(file(LARGE_BYTES, PLANTED), SIGNATURES);
    }

    /** What is found in a file, which is given in base64. */
    public static String base64(String file) {
        return scan(Base64.decode(file, Base64.DEFAULT), SIGNATURES);
    }

    /**
     * What is found, as JSON: `{"bytes": …, "found": [{"name": …, "at": …}, …]}` in the order of the ends, 10,000
     * at most.
     *
     * <p>`signatures` are EICAR's and so many generated ones, 5,000 at most.
     */
    static String scan(byte[] file, int signatures) {
        List<byte[]> patterns = signatures(signatures);
        JSONArray found = new JSONArray();
        new AhoCorasick(patterns).scan(file, (pattern, end) -> {
            if (found.length() < FOUND_MAX) {
                found.put(finding(name(pattern), end - patterns.get(pattern).length));
            }
        });
        try {
            return new JSONObject().put("bytes", file.length).put("found", found).toString();
        } catch (JSONException never) {
            throw new IllegalStateException(never);
        }
    }

    private static JSONObject finding(String name, int at) {
        try {
            return new JSONObject().put("name", name).put("at", at);
        } catch (JSONException never) {
            throw new IllegalStateException(never);
        }
    }

    private static String name(int pattern) {
        return pattern == 0 ? "EICAR-Test-File" : "Generated-" + pattern;
    }

    /** EICAR's, and generated ones of 8 to 39 bytes: the same ones each time. */
    static List<byte[]> signatures(int count) {
        if (count < 0 || count > SIGNATURES_MAX) {
            throw new IllegalArgumentException(count + " signatures, of 0 to " + SIGNATURES_MAX);
        }
        List<byte[]> signatures = new ArrayList<>();
        signatures.add(EICAR.getBytes(StandardCharsets.US_ASCII));
        Random random = new Random(42);
        for (int at = 0; at < count; at++) {
            byte[] signature = new byte[8 + random.nextInt(32)];
            random.nextBytes(signature);
            signatures.add(signature);
        }
        return signatures;
    }

    /** A file of random bytes, with so many signatures in it at even distances. */
    static byte[] file(int bytes, int planted) {
        byte[] file = new byte[bytes];
        new Random(bytes).nextBytes(file);
        List<byte[]> signatures = signatures(SIGNATURES);
        for (int at = 0; at < planted; at++) {
            byte[] signature = signatures.get(at * 250);
            System.arraycopy(signature, 0, file, place(bytes, planted, at), signature.length);
        }
        return file;
    }

    static int place(int bytes, int planted, int at) {
        return (int) ((long) bytes * (at + 1) / (planted + 1));
    }

    /** For tests. */
    static byte[] eicar() {
        return Arrays.copyOf(EICAR.getBytes(StandardCharsets.US_ASCII), EICAR.length());
    }
}
