package lighterage.places;

import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import lighterage.ConfigInvalid;
import lighterage.json.Json;

/**
 * Which nodes the environment names, and with which token: the rules of the command line, for several nodes.
 *
 * <pre>
 * address   LIGHTERAGE_NODES (several) ▸ LIGHTER_NODE ▸ api in DATA/node.json
 * token     LIGHTERAGE_TOKENS (ADDRESS=TOKEN,…) ▸ LIGHTER_TOKEN ▸ DATA/token (for the node that proves it)
 * DATA      LIGHTER_DATA ▸ $XDG_DATA_HOME/lighter ▸ ~/.local/share/lighter
 * </pre>
 *
 * <p>`LIGHTER_TOKEN` names no node, so it is sent to one alone: a second one would learn the first one's token.
 */
final class Config {
    private static final int FILE_BYTES_MAX = 64 << 10;

    private final Map<String, String> environment;

    Config(Map<String, String> environment) {
        this.environment = environment;
    }

    /** The nodes. Throws ConfigInvalid where one is no address, or one token would go to several. */
    List<Address> found() {
        List<String> urls = new ArrayList<>();
        for (String url : entries(get("LIGHTERAGE_NODES", get("LIGHTER_NODE", "")))) {
            urls.add(Address.normal(url));
        }
        File folder = folder();
        String own = known(folder);
        if (urls.isEmpty() && own != null) {
            urls.add(own);
        }
        Map<String, String> tokens = tokens();
        String nameless = get("LIGHTER_TOKEN", "").trim();
        List<Address> found = new ArrayList<>();
        String first = null;
        for (String url : urls) {
            String token = tokens.get(url);
            if (token == null && !nameless.isEmpty()) {
                if (first != null && !first.equals(url)) {
                    throw new ConfigInvalid("LIGHTER_TOKEN is one token, and it would go to " + first + " and to " + url
                            + ", either of which could use it on the other: name the token of each,"
                            + " LIGHTERAGE_TOKENS=ADDRESS=TOKEN,…");
                }
                first = url;
                token = nameless;
            }
            boolean proves = token == null && url.equals(own);
            found.add(address(url, proves ? read(new File(folder, "token")).trim() : token, proves));
        }
        return found;
    }

    /** The node at this address; the certificates are those that the environment names. */
    Address address(String url, String token, boolean proves) {
        String caFile = get("LIGHTERAGE_CA_CERT", null);
        return new Address(url, token, caFile, proves, "1".equals(get("LIGHTERAGE_PLAIN_TEXT", "")));
    }

    private Map<String, String> tokens() {
        Map<String, String> tokens = new LinkedHashMap<>();
        int number = 0;
        for (String entry : entries(get("LIGHTERAGE_TOKENS", ""))) {
            number++;
            int equals = entry.indexOf('=');
            if (equals < 0 || equals == entry.length() - 1) {
                // Without its words: half of it is a secret.
                throw new ConfigInvalid("LIGHTERAGE_TOKENS: entry " + number + " is not written ADDRESS=TOKEN");
            }
            tokens.put(Address.normal(entry.substring(0, equals)), entry.substring(equals + 1));
        }
        return tokens;
    }

    private static List<String> entries(String text) {
        List<String> entries = new ArrayList<>();
        for (String entry : text.split("[,\\s]+")) {
            if (!entry.isEmpty()) {
                entries.add(entry);
            }
        }
        return entries;
    }

    private File folder() {
        String home = get("XDG_DATA_HOME", get("HOME", "/") + "/.local/share");
        return new File(get("LIGHTER_DATA", home + "/lighter"));
    }

    private static String known(File folder) {
        try {
            Object api = ((Map<?, ?>) Json.read(read(new File(folder, "node.json")))).get("api");
            return Address.normal((String) api);
        } catch (IllegalArgumentException | ClassCastException | NullPointerException | ConfigInvalid strange) {
            return null;
        }
    }

    /** The text of a file; empty where there is none, or it is too large to be what is looked for. */
    private static String read(File file) {
        byte[] bytes = new byte[FILE_BYTES_MAX];
        int length = 0;
        try (InputStream in = new FileInputStream(file)) {
            for (int got = in.read(bytes); got > 0; got = in.read(bytes, length, bytes.length - length)) {
                length += got;
            }
        } catch (IOException missing) {
            return "";
        }
        return length == bytes.length ? "" : new String(bytes, 0, length, StandardCharsets.UTF_8);
    }

    private String get(String name, String other) {
        String found = environment.get(name);
        return found == null || found.isEmpty() ? other : found;
    }
}
