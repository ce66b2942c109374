package lighterage.places;

import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import lighterage.ReplyBroken;
import lighterage.TimeIsUp;

/**
 * One connection to a node, used by one thread at a time: a request, then its whole reply.
 *
 * <p>Each read waits until the deadline at most. A write cannot be told how long to wait, so whoever opens a connection
 * closes it at the deadline.
 */
final class Connection implements Closeable {
    /** Bytes of the head of a reply. */
    private static final int HEAD_BYTES_MAX = 64 << 10;
    /** Heads that only say that another one comes. */
    private static final int HEADS_MAX = 8;
    /** Bytes of a line between chunks, and of all lines after the last. */
    private static final int LINE_BYTES_MAX = 4 << 10;
    /** Room that is made before bytes have come. */
    private static final int ROOM_BYTES = 1 << 20;
    private static final int NO_BODY = 0;

    /** The connection was closed before a byte of the reply came. */
    static final class Stale extends Exception {
        private static final long serialVersionUID = 1;

        /** `why` is null where the whole request was sent. */
        Stale(IOException why) {
            super(null, why, false, false);
        }
    }

    private final Socket socket;
    /** Under TLS, which would say goodbye first, and wait for whoever does not read. */
    private final Socket raw;
    private final String url;
    private final InputStream in;
    private final OutputStream out;
    private final byte[] block = new byte[16 << 10];
    private int from;
    private int to;
    private double deadline;

    Connection(Socket socket, Socket raw, String url) throws IOException {
        this.socket = socket;
        this.raw = raw;
        this.url = url;
        this.in = socket.getInputStream();
        this.out = socket.getOutputStream();
    }

    /** Whether it can be used again, as far as is known without waiting: nothing came unasked. Its end is not seen. */
    boolean isQuiet() {
        try {
            return !raw.isClosed() && from == to && in.available() == 0;
        } catch (IOException ended) {
            return false;
        }
    }

    @Override
    public void close() {
        try {
            raw.close();
        } catch (IOException closed) {
            return;
        }
    }

    /** Sends a request and reads its reply, whose body has `bodyMax` bytes at most; 0: it has none. */
    Reply exchange(byte[] head, byte[] body, double until, int bodyMax) throws Stale {
        deadline = until;
        double began = Clock.now();
        IOException early = send(head, body);
        Reply reply;
        try {
            reply = head();
        } catch (Stale stale) {
            throw new Stale(early);
        }
        reply.beganAt = began;
        reply.headAt = Clock.now();
        if (bodyMax != NO_BODY && reply.status != 204 && reply.status != 304) {
            reply.body = reply.header("transfer-encoding").equalsIgnoreCase("chunked")
                    ? chunks(bodyMax)
                    : take(length(reply, bodyMax));
        }
        reply.wholeAt = Clock.now();
        if (early != null) {
            // The node answered before it had read everything: what is left of the request is in the way.
            reply.headers.put("connection", "close");
        }
        return reply;
    }

    /** An error in the middle is kept, because the node may have said why before. */
    private IOException send(byte[] head, byte[] body) {
        try {
            out.write(head);
            out.write(body);
            out.flush();
            return null;
        } catch (IOException broken) {
            return broken;
        }
    }

    private Reply head() throws Stale {
        byte[] head = new byte[512];
        int length = 0;
        int heads = 0;
        while (true) {
            int letter = next(length > 0 || heads > 0);
            if (length >= HEAD_BYTES_MAX) {
                throw new ReplyBroken(url + " sent more than " + HEAD_BYTES_MAX + " bytes of headers");
            }
            head = length == head.length ? Arrays.copyOf(head, 2 * length) : head;
            head[length++] = (byte) letter;
            if (letter != '\n' || length < 4 || head[length - 2] != '\r' || head[length - 3] != '\n') {
                continue;
            }
            Reply reply = parsed(new String(head, 0, length - 4, StandardCharsets.ISO_8859_1));
            if (reply.status >= 200) {
                return reply;
            }
            length = 0;
            heads++;
            if (heads > HEADS_MAX) {
                throw new ReplyBroken(url + " says again and again that its reply will come");
            }
        }
    }

    private Reply parsed(String text) {
        String[] lines = text.split("\r\n");
        if (!lines[0].matches("HTTP/1\\.[0-9] [1-5][0-9]{2}(?![0-9]).*")) {
            throw new ReplyBroken(url + " does not speak HTTP");
        }
        Map<String, String> headers = new HashMap<>();
        for (int line = 1; line < lines.length; line++) {
            int colon = lines[line].indexOf(':');
            if (colon > 0) {
                String name = lines[line].substring(0, colon).toLowerCase(Locale.ROOT);
                headers.put(name, lines[line].substring(colon + 1).trim());
            }
        }
        return new Reply(Integer.parseInt(lines[0].substring(9, 12)), headers);
    }

    private int length(Reply reply, int bodyMax) {
        String said = reply.header("content-length");
        if (!said.matches("[0-9]{1,18}")) {
            throw new ReplyBroken(url + " does not say how long its reply is");
        }
        long length = Long.parseLong(said);
        if (length > bodyMax) {
            throw new ReplyBroken(url + " announces a reply of " + length + " bytes, the limit is " + bodyMax);
        }
        return (int) length;
    }

    private byte[] chunks(int bodyMax) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        while (true) {
            String said = line().split(";", 2)[0].trim();
            if (!said.matches("[0-9a-fA-F]{1,8}")) {
                throw new ReplyBroken(url + " sent a broken chunk");
            }
            long size = Long.parseLong(said, 16);
            if (size > bodyMax - body.size()) {
                throw new ReplyBroken(url + " sent more than " + bodyMax + " bytes");
            }
            if (size == 0) {
                break;
            }
            body.write(take((int) size), 0, (int) size);
            if (!line().isEmpty()) {
                throw new ReplyBroken(url + " sent a broken chunk");
            }
        }
        int trailers = 0;
        for (String line = line(); !line.isEmpty(); line = line()) {
            trailers += line.length() + 2;
            if (trailers > LINE_BYTES_MAX) {
                throw new ReplyBroken(url + " sent more than " + LINE_BYTES_MAX + " bytes after its last chunk");
            }
        }
        return body.toByteArray();
    }

    private String line() {
        StringBuilder line = new StringBuilder();
        while (true) {
            char letter = (char) inside();
            if (letter == '\n' && line.length() > 0 && line.charAt(line.length() - 1) == '\r') {
                return line.substring(0, line.length() - 1);
            }
            if (line.length() >= LINE_BYTES_MAX) {
                throw new ReplyBroken(url + " sent a line of more than " + LINE_BYTES_MAX + " bytes between chunks");
            }
            line.append(letter);
        }
    }

    /** So many bytes; room is made for them as they come. */
    private byte[] take(int length) {
        byte[] taken = new byte[Math.min(length, ROOM_BYTES)];
        int at = 0;
        while (at < length) {
            taken = at == taken.length ? Arrays.copyOf(taken, (int) Math.min(length, 2L * at)) : taken;
            if (from < to) {
                int count = Math.min(to - from, taken.length - at);
                System.arraycopy(block, from, taken, at, count);
                from += count;
                at += count;
                continue;
            }
            int got;
            try {
                got = read(taken, at, taken.length - at);
            } catch (IOException broken) {
                throw new ReplyBroken(url + ": " + broken.getMessage());
            }
            if (got < 0) {
                throw new ReplyBroken(url + " broke off in its reply");
            }
            at += got;
        }
        return taken;
    }

    private int inside() {
        try {
            return next(true);
        } catch (Stale never) {
            throw new AssertionError(never);
        }
    }

    private int next(boolean hasBegun) throws Stale {
        if (from == to) {
            try {
                from = 0;
                to = Math.max(0, read(block, 0, block.length));
            } catch (IOException broken) {
                to = 0;
                if (hasBegun) {
                    throw new ReplyBroken(url + ": " + broken.getMessage());
                }
            }
            if (to == 0) {
                if (hasBegun) {
                    throw new ReplyBroken(url + " broke off in the head of its reply");
                }
                throw new Stale(null);
            }
        }
        return block[from++] & 0xFF;
    }

    private int read(byte[] into, int at, int length) throws IOException {
        double left = deadline - Clock.now();
        if (left <= 0) {
            throw late();
        }
        socket.setSoTimeout((int) Math.min(Math.ceil(left * 1e3), Integer.MAX_VALUE));
        try {
            return in.read(into, at, length);
        } catch (SocketTimeoutException slow) {
            throw late();
        } catch (IOException broken) {
            if (Clock.now() >= deadline) {
                // It was closed at the deadline.
                throw late();
            }
            throw broken;
        }
    }

    private TimeIsUp late() {
        return new TimeIsUp(url + " did not answer in time");
    }
}
