package lighterage.places;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import lighterage.frame.Frame;

/** Stands in for a node: its HTTP API, and one value as the result of every call. Fields say what to do wrong. */
public final class StandIn implements AutoCloseable {
    private static final Pattern NAME = Pattern.compile("\"function\":\\{\"([^\"]+)\"");

    /** A status, a code, and whether it comes in the stream of a deployment. */
    public static final class Problem {
        private final int status;
        private final String code;
        private final boolean isInStream;

        public Problem(int status, String code, boolean isInStream) {
            this.status = status;
            this.code = code;
            this.isInStream = isInStream;
        }

        private byte[] document() {
            String said = "{\"status\": " + status + ", \"code\": \"" + code + "\", \"detail\": \"not now\"}";
            return said.getBytes(StandardCharsets.UTF_8);
        }
    }

    private final HttpServer server;
    /** What images are answered with, which are not there then; null: they are. And how many were sent. */
    public volatile Problem refusedImages;
    public final AtomicInteger images = new AtomicInteger();
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final Set<String> functions = Collections.newSetFromMap(new ConcurrentHashMap<String, Boolean>());
    /** Deployments wait for it. */
    public volatile CountDownLatch mayDeploy = new CountDownLatch(0);
    /** How many there were, and how many calls. */
    public final AtomicInteger deployments = new AtomicInteger();
    public final AtomicInteger calls = new AtomicInteger();
    /** What deployments and calls are answered with, one after the other, before they are done. */
    public final Queue<Problem> refusedDeployments = new ConcurrentLinkedQueue<>();
    public final Queue<Problem> refusedCalls = new ConcurrentLinkedQueue<>();
    /** The result of every call, as a plain value, and what is said of its times. */
    public volatile Object result = 1L;
    public volatile String timing = "run;dur=1";

    public StandIn() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0), 50);
        server.setExecutor(threads);
        server.createContext("/v1/", exchange -> {
            try {
                answer(exchange, exchange.getRequestURI().getPath());
            } catch (InterruptedException ended) {
                exchange.close();
            }
        });
        server.start();
    }

    public String url() {
        return "http://" + name();
    }

    public String name() {
        return "127.0.0.1:" + server.getAddress().getPort();
    }

    /** It forgets what was deployed. */
    public void forget() {
        functions.clear();
    }

    private void answer(HttpExchange exchange, String path) throws IOException, InterruptedException {
        byte[] body = whole(exchange.getRequestBody());
        if (path.equals("/v1/node")) {
            send(exchange, 200, "{\"isolation\": [\"process\"]}".getBytes(StandardCharsets.UTF_8));
        } else if (path.equals("/v1/openapi.json")) {
            send(exchange, 200, new byte[75_000]);
        } else if (path.startsWith("/v1/images/")) {
            image(exchange);
        } else if (path.equals("/v1/deployments")) {
            deploy(exchange, new String(body, StandardCharsets.UTF_8));
        } else if (path.equals("/v1/functions")) {
            send(exchange, 200, "[]".getBytes(StandardCharsets.UTF_8));
        } else {
            call(exchange, path.split("/")[3]);
        }
    }

    private void image(HttpExchange exchange) throws IOException {
        Problem problem = refusedImages;
        images.addAndGet(exchange.getRequestMethod().equals("PUT") ? 1 : 0);
        if (problem == null) {
            send(exchange, 200, new byte[0]);
        } else {
            send(exchange, exchange.getRequestMethod().equals("PUT") ? problem.status : 404, problem.document());
        }
    }

    private void deploy(HttpExchange exchange, String manifest) throws IOException, InterruptedException {
        deployments.incrementAndGet();
        mayDeploy.await();
        Problem problem = refusedDeployments.poll();
        if (problem != null && !problem.isInStream) {
            send(exchange, problem.status, problem.document());
        } else if (problem != null) {
            String said = new String(problem.document(), StandardCharsets.UTF_8);
            String stream = "{\"step\": \"checked\"}\n{\"step\": \"failed\", \"problem\": " + said + "}\n";
            send(exchange, 200, stream.getBytes(StandardCharsets.UTF_8));
        } else {
            Matcher name = NAME.matcher(manifest);
            if (name.find()) {
                functions.add(name.group(1));
            }
            send(exchange, 200, "{\"step\": \"checked\"}\n{\"step\": \"done\"}\n".getBytes(StandardCharsets.UTF_8));
        }
    }

    private void call(HttpExchange exchange, String function) throws IOException {
        if (!functions.contains(function)) {
            send(exchange, 404, new Problem(404, "L2001", false).document());
            return;
        }
        calls.incrementAndGet();
        Problem problem = refusedCalls.poll();
        if (problem != null) {
            send(exchange, problem.status, problem.document());
            return;
        }
        exchange.getResponseHeaders().set("server-timing", timing);
        send(exchange, 200, new Frame(Frame.REPLY, 0, result).encode(false).array());
    }

    private static void send(HttpExchange exchange, int status, byte[] body) throws IOException {
        boolean isBare = exchange.getRequestMethod().equals("HEAD") || body.length == 0;
        if (isBare) {
            exchange.getResponseHeaders().set("content-length", "0");
        }
        exchange.sendResponseHeaders(status, isBare ? -1 : body.length);
        if (!isBare) {
            exchange.getResponseBody().write(body);
        }
        exchange.close();
    }

    private static byte[] whole(InputStream in) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        byte[] some = new byte[65_536];
        for (int got = in.read(some); got > 0; got = in.read(some)) {
            out.write(some, 0, got);
        }
        return out.toByteArray();
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }
}
