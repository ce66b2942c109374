package lighterage.places;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.Future;
import lighterage.NodeUnproven;
import lighterage.NodeUnreachable;
import lighterage.ReplyBroken;
import lighterage.TimeIsUp;
import lighterage.json.Json;

/**
 * HTTP/1.1 to one node: few connections that stay open, one request at a time on each. Safe for threads.
 *
 * <p>Over sockets, because the platform's clients repeat requests, follow redirects with the token, or are not on
 * Android; the same code runs everywhere.
 */
final class Api {
    /** Bytes of a reply, where nothing else is said: of JSON. */
    static final int BODY_BYTES_MAX = 4 << 20;
    private static final int NONCE_BYTES = 32;
    private static final int PROOF_BYTES_MAX = 4 << 10;
    /** Idle connections kept to one node. */
    private static final int KEPT_MAX = 32;
    /** How long a connection may take to open. */
    private static final double CONNECT_SECONDS = 3.0;
    /** Whoever had so long to connect, and got no connection, has met a node that is silent. */
    private static final double FAIR_SECONDS = 0.5;
    /** How much after the deadline a connection is closed: by then whoever reads from it has said that it is late. */
    private static final double LATE_SECONDS = 0.01;

    /** One request. */
    static final class Request {
        private final String method;
        private final String path;
        private byte[] body = {};
        private String contentType = "application/octet-stream";
        private int bodyMax = BODY_BYTES_MAX;
        private Cancel cancel = new Cancel();
        private final double deadline;

        /** `deadline` is of {@link Clock}. */
        Request(String method, String path, double deadline) {
            this.method = method;
            this.path = path;
            this.deadline = deadline;
        }

        Request body(byte[] bytes, String type) {
            body = bytes;
            contentType = type;
            return this;
        }

        Request replyMax(int bytes) {
            bodyMax = bytes;
            return this;
        }

        Request endedBy(Cancel other) {
            cancel = other;
            return this;
        }

        private byte[] head(String fixed) {
            String own = "content-type: " + contentType + "\r\ncontent-length: " + body.length + "\r\n\r\n";
            return (method + " " + path + " HTTP/1.1\r\n" + fixed + own).getBytes(StandardCharsets.US_ASCII);
        }
    }

    private final Address address;
    private final Tls tls;
    private final String unsigned;
    private final String fixed;
    private final Deque<Connection> kept = new ArrayDeque<>();

    Api(Address address) {
        this.address = address;
        this.tls = address.isTls ? new Tls(address.caFile) : null;
        this.unsigned = "host: " + address.name() + "\r\n";
        this.fixed = address.token == null ? unsigned : unsigned + "authorization: Bearer " + address.token + "\r\n";
    }

    /**
     * Sends a request and reads the whole reply. A connection that was closed while idle is opened anew, because
     * nothing of the request has been read by then. A large request finds that out while it is sent.
     *
     * <p>Throws NodeUnreachable or ReplyBroken; TimeIsUp past the deadline; CancellationException where it was
     * cancelled.
     */
    Reply request(Request request) {
        while (true) {
            Connection connection = idle();
            boolean isFresh = connection == null;
            if (isFresh) {
                connection = open(request.deadline);
            }
            Connection used = connection;
            double left = Math.max(request.deadline - Clock.now(), 0.0);
            // A write cannot be told how long to wait: what a node does not take ends with its connection.
            Future<?> end = Background.after(left + LATE_SECONDS, used::close);
            boolean isWhole = false;
            try {
                request.cancel.watch(used);
                int bodyMax = request.method.equals("HEAD") ? 0 : request.bodyMax;
                Reply reply = used.exchange(request.head(fixed), request.body, request.deadline, bodyMax);
                isWhole = !reply.header("connection").equalsIgnoreCase("close");
                return reply;
            } catch (Connection.Stale stale) {
                if (request.cancel.isCancelled()) {
                    throw new CancellationException();
                }
                if (isFresh) {
                    Throwable early = stale.getCause();
                    throw new ReplyBroken(address.url + (early == null
                            ? " closed the connection instead of answering"
                            : " closed the connection while it was sent to: " + early.getMessage()));
                }
            } catch (ReplyBroken | TimeIsUp broken) {
                if (request.cancel.isCancelled()) {
                    throw new CancellationException();
                }
                throw broken;
            } finally {
                request.cancel.unwatch();
                boolean isInTime = end.cancel(false);
                if (isWhole && isInTime) {
                    keep(used);
                } else {
                    used.close();
                }
            }
        }
    }

    private Connection idle() {
        while (true) {
            Connection connection;
            synchronized (kept) {
                connection = kept.pollLast();
            }
            if (connection == null || connection.isQuiet()) {
                return connection;
            }
            connection.close();
        }
    }

    private void keep(Connection connection) {
        Connection oldest = null;
        synchronized (kept) {
            kept.addLast(connection);
            if (kept.size() > KEPT_MAX) {
                oldest = kept.pollFirst();
            }
        }
        if (oldest != null) {
            oldest.close();
        }
    }

    private Connection open(double deadline) {
        double began = Clock.now();
        double seconds = Math.min(CONNECT_SECONDS, deadline - began);
        if (seconds <= 0) {
            throw new TimeIsUp(address.url + " was not reached in time");
        }
        Socket socket = new Socket();
        // The handshake of TLS reads more than once: all of it has this long.
        Future<?> end = Background.after(seconds, () -> close(socket));
        try {
            socket.connect(new InetSocketAddress(host(), address.port), (int) Math.ceil(seconds * 1e3));
            socket.setTcpNoDelay(true);
            Socket safe = tls == null ? socket : tls.over(socket, host(), address.port);
            Connection connection = new Connection(safe, socket, address.url);
            if (address.proves) {
                seeProof(connection, seconds, deadline);
            }
            return connection;
        } catch (IOException error) {
            close(socket);
            if (isLate(seconds, deadline)) {
                // The node has done nothing wrong: there was less time than a connection may take.
                throw new TimeIsUp(address.url + " was not reached in time");
            }
            String slow = "no connection within " + Math.round(seconds * 1e3) + " ms";
            boolean isSlow = error instanceof SocketTimeoutException || Clock.now() - began > seconds - LATE_SECONDS;
            String why = isSlow ? slow : error.getMessage();
            throw new NodeUnreachable(address.url + ": " + why);
        } catch (RuntimeException error) {
            close(socket);
            throw error;
        } finally {
            end.cancel(false);
        }
    }

    /** Whether a request that had few seconds to connect has no time left; a timer may be a little early. */
    private static boolean isLate(double seconds, double deadline) {
        return seconds < FAIR_SECONDS && deadline - Clock.now() < LATE_SECONDS;
    }

    private String host() {
        String host = address.host;
        return host.startsWith("[") ? host.substring(1, host.length() - 1) : host;
    }

    /** Asks for proof that this is the node of the data folder: whoever listens where it did cannot give it. */
    private void seeProof(Connection connection, double seconds, double deadline) {
        double until = Math.min(Clock.now() + seconds, deadline);
        byte[] random = new byte[NONCE_BYTES];
        new SecureRandom().nextBytes(random);
        String nonce = Proof.hex(random);
        String head = "GET /v1/identity?nonce=" + nonce + " HTTP/1.1\r\n" + unsigned + "\r\n";
        boolean isProven;
        try {
            byte[] bytes = head.getBytes(StandardCharsets.US_ASCII);
            Reply reply = connection.exchange(bytes, new byte[0], until, PROOF_BYTES_MAX);
            Object said = Json.read(new String(reply.body, StandardCharsets.UTF_8));
            String proof = (String) ((Map<?, ?>) said).get("proof");
            isProven = reply.status == 200 && Proof.isSame(proof, Proof.of(address.token, address.url, nonce));
        } catch (Connection.Stale | RuntimeException strange) {
            if (isLate(seconds, deadline)) {
                throw new TimeIsUp(address.url + " did not prove itself in time");
            }
            isProven = false;
        }
        if (!isProven) {
            String what = "what listens at " + address.url + " is not the node of the data folder";
            throw new NodeUnproven(what + "; no token was sent to it");
        }
    }

    /** Closes idle connections; the next request opens one. */
    void close() {
        synchronized (kept) {
            for (Connection connection : kept) {
                connection.close();
            }
            kept.clear();
        }
    }

    private static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException closed) {
            return;
        }
    }
}
