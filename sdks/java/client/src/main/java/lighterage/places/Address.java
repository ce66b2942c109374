package lighterage.places;

import java.net.URI;
import java.net.URISyntaxException;
import java.util.Locale;
import lighterage.ConfigInvalid;

/** A node, and how to talk to it. Never printed: it has a secret. */
public final class Address {
    private static final int PORT_MAX = 65_535;

    /** With its scheme, in small letters. */
    final String url;
    final String host;
    final int port;
    final boolean isTls;
    /** Null where there is none. */
    final String token;
    /** A file of certificates in PEM that are trusted in place of the system's; null where the system's are. */
    final String caFile;
    /** Whether the node must prove to know the token before it is sent. */
    final boolean proves;

    /** `url` is `http://host:port` or `https://host:port`. Throws ConfigInvalid where it is none. */
    public Address(String url, String token, String caFile, boolean proves, boolean isPlainTextTrusted) {
        URI parts = parse(url);
        this.url = normal(url);
        this.host = parts.getHost();
        this.isTls = parts.getScheme().equals("https");
        this.port = parts.getPort() > 0 ? parts.getPort() : isTls ? 443 : 80;
        this.token = token == null || token.isEmpty() ? null : token;
        this.caFile = caFile;
        this.proves = proves;
        check(isPlainTextTrusted);
    }

    /** The node's name: its address without the scheme. */
    String name() {
        return url.substring(url.indexOf("//") + 2);
    }

    /** The address as it is compared. */
    static String normal(String url) {
        URI parts = parse(url);
        return parts.getScheme() + "://" + parts.getRawAuthority().toLowerCase(Locale.ROOT);
    }

    private static URI parse(String text) {
        String url = text.contains("//") ? text : "http://" + text;
        url = url.endsWith("/") ? url.substring(0, url.length() - 1) : url;
        try {
            URI parts = new URI(url);
            String scheme = parts.getScheme();
            boolean isHttp = "http".equals(scheme) || "https".equals(scheme);
            boolean isBare = parts.getRawPath() == null || parts.getRawPath().isEmpty();
            boolean hasMore = parts.getRawQuery() != null || parts.getRawFragment() != null;
            if (parts.getPort() == 0 || parts.getPort() > PORT_MAX) {
                throw new ConfigInvalid("\"" + text + "\" has no port of TCP: write a number from 1 to " + PORT_MAX);
            }
            if (isHttp && isBare && !hasMore && parts.getHost() != null && parts.getRawUserInfo() == null) {
                return parts;
            }
        } catch (URISyntaxException strange) {
            // Said below, in the words of this library.
        }
        String example = "write http://127.0.0.1:8701 or https://node.example.org:8701";
        throw new ConfigInvalid("\"" + text + "\" is not the address of a node: " + example);
    }

    private void check(boolean isPlainTextTrusted) {
        for (int at = 0; token != null && at < token.length(); at++) {
            if (token.charAt(at) <= ' ' || token.charAt(at) > '~') {
                throw new ConfigInvalid("a token is printable ASCII; this one is not");
            }
        }
        if (token != null && !isTls && !isThisMachine(host) && !isPlainTextTrusted) {
            throw new ConfigInvalid("the token would travel unencrypted to " + url
                    + ": use https, an SSH tunnel to 127.0.0.1, or LIGHTERAGE_PLAIN_TEXT=1 on a network you trust");
        }
    }

    /** By how it is written: nobody is asked for the address of a name. */
    private static boolean isThisMachine(String host) {
        return host.equals("localhost") || host.equals("[::1]") || host.matches("127(\\.[0-9]{1,3}){3}");
    }
}
