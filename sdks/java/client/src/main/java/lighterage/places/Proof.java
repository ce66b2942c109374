package lighterage.places;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** What the node of a data folder answers to a nonce, by which it is known before it is sent the token. */
final class Proof {
    private Proof() {}

    /** The same as `identity.rs` of the node, in hexadecimal digits. */
    static String of(String token, String url, String nonce) {
        byte[] key = mac(ascii(token), ascii("lighterage identity 1"));
        return hex(mac(key, ascii(url + "\0" + nonce)));
    }

    /** Whether both are the same, without telling by the time taken where they differ. */
    static boolean isSame(String one, String other) {
        return MessageDigest.isEqual(ascii(one), ascii(other));
    }

    static String hex(byte[] bytes) {
        StringBuilder out = new StringBuilder();
        for (byte one : bytes) {
            out.append(Character.forDigit(one >> 4 & 15, 16)).append(Character.forDigit(one & 15, 16));
        }
        return out.toString();
    }

    private static byte[] mac(byte[] key, byte[] text) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            return mac.doFinal(text);
        } catch (GeneralSecurityException missing) {
            throw new IllegalStateException("every Java has HMAC-SHA-256", missing);
        }
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
