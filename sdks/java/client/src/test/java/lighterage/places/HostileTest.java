package lighterage.places;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import lighterage.ConfigInvalid;
import lighterage.LighterageException;
import lighterage.NodeUnproven;
import lighterage.NodeUnreachable;
import lighterage.ReplyBroken;
import lighterage.TimeIsUp;
import lighterage.code.Code;
import lighterage.code.Limits;

/** What a node may send that is no reply, and addresses that are none: each has a clear end. */
public final class HostileTest {
    private static final String OK = "HTTP/1.1 200 OK\r\n";

    /** Every broken reply is ReplyBroken, and says what is wrong. */
    public void testBrokenRepliesAreRefused() throws IOException {
        Map<String, String> replies = new LinkedHashMap<>();
        replies.put("SSH-2.0-x\r\n\r\n", "does not speak HTTP");
        replies.put("HTTP/1.1 999 x\r\n\r\n", "does not speak HTTP");
        replies.put(OK + "\r\n", "does not say how long");
        replies.put(OK + "content-length: -1\r\n\r\n", "does not say how long");
        replies.put(OK + "content-length: 99999999999\r\n\r\n", "the limit is 1000");
        replies.put(OK + "content-length: 9\r\n\r\nshort", "broke off");
        replies.put(OK + "a: " + repeated("b", 70_000) + "\r\n\r\n", "bytes of headers");
        replies.put(repeated("HTTP/1.1 100 Continue\r\n\r\n", 20), "again and again");
        replies.put(OK + "transfer-encoding: chunked\r\n\r\nx\r\n", "broken chunk");
        replies.put(OK + "transfer-encoding: chunked\r\n\r\nfffffff\r\n", "more than 1000");
        replies.put(OK + "transfer-encoding: chunked\r\n\r\n1\r\nab\r\n", "broken chunk");
        replies.put(OK + "transfer-encoding: chunked\r\n\r\n" + repeated("1", 9_000), "between chunks");
        replies.put(OK + "transfer-encoding: chunked\r\n\r\n0\r\n" + repeated("a: b\r\n", 2_000), "after its last");
        for (Map.Entry<String, String> one : replies.entrySet()) {
            LighterageException error = failed(one.getKey(), 30);
            assert error instanceof ReplyBroken && error.getMessage().contains(one.getValue()) : error;
        }
    }

    /** What is read as JSON has its limits, of all of it and of a number. */
    public void testJsonIsBounded() throws IOException {
        try (Server server = new Server(OK + "content-length: 4194305\r\n\r\n")) {
            Api api = new Api(new Address(server.url(), null, null, false, false));
            api.request(new Api.Request("GET", "/", Clock.now() + 30));
            assert false;
        } catch (ReplyBroken broken) {
            assert broken.getMessage().contains("the limit is 4194304") : broken;
        }
        double began = Clock.now();
        String body = "{\"isolation\": [\"process\"], \"x\": " + repeated("7", 3_000_000) + "}";
        try (Server server = new Server(OK + "content-length: " + body.length() + "\r\n\r\n" + body)) {
            new Node(new Address(server.url(), null, null, false, false)).ask();
            assert false;
        } catch (ReplyBroken broken) {
            assert broken.getMessage().contains("no JSON") : broken;
        }
        assert Clock.now() - began < 20 : Clock.now() - began;
    }

    /** A node that goes silent, at any place, is left at the deadline. */
    public void testSilenceEndsAtTheDeadline() throws IOException {
        for (String begin : new String[] {"", "HTTP/1.1 2", OK + "content-length: 9\r\n\r\nabc"}) {
            LighterageException error = failed(begin + "\0", 0.2);
            assert error instanceof TimeIsUp : error;
        }
    }

    /** A deadline that is shorter than a connection takes says nothing of the node. */
    public void testADeadlineWhileConnectingIsNoFaultOfTheNode() throws IOException {
        for (boolean isTls : new boolean[] {true, false}) {
            try (Server server = new Server("\0")) {
                String url = isTls ? server.url().replace("http:", "https:") : server.url();
                Api api = new Api(new Address(url, "secret-token", null, !isTls, false));
                api.request(new Api.Request("GET", "/", Clock.now() + 0.2));
                assert false;
            } catch (TimeIsUp late) {
                assert late.getMessage().contains("in time") : late;
            }
        }
    }

    /** Whoever had a fair time to connect has met a silent node, even where the deadline has passed by then. */
    public void testANodeThatGivesNoConnectionInAFairTimeIsSilent() throws IOException {
        try (Silent silent = new Silent(0)) {
            Api api = new Api(new Address("http://127.0.0.1:" + silent.port(), null, null, false, false));
            try {
                api.request(new Api.Request("GET", "/", Clock.now() + 0.6));
                assert false;
            } catch (NodeUnreachable said) {
                assert said.getMessage().contains("no connection within") : said;
            }
            try {
                api.request(new Api.Request("GET", "/", Clock.now() + 0.2));
                assert false;
            } catch (TimeIsUp late) {
                assert late.getMessage().contains("in time") : late;
            }
        }
        for (boolean isTls : new boolean[] {true, false}) {
            try (Server server = new Server("\0")) {
                String url = isTls ? server.url().replace("http:", "https:") : server.url();
                Api api = new Api(new Address(url, "secret-token", null, !isTls, false));
                api.request(new Api.Request("GET", "/", Clock.now() + 0.6));
                assert false;
            } catch (NodeUnreachable | NodeUnproven said) {
                assert said instanceof NodeUnreachable == isTls : said;
                assert !isTls || said.getMessage().contains("no connection within") : said;
            }
        }
    }

    /** Whole replies of both kinds are read, and the connection is used again. */
    public void testGoodRepliesAreRead() throws IOException {
        String chunked = OK + "transfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nt: u\r\n\r\n";
        String timed = "HTTP/1.1 100 Continue\r\n\r\n" + OK
                + "Server-Timing: queue;dur=0.5, run;dur=2000, x;dur=-1, y;dur=nan\r\ncontent-length: 5\r\n\r\nabcde";
        for (String whole : new String[] {chunked, timed}) {
            try (Server server = new Server(whole)) {
                Api api = new Api(new Address(server.url(), null, null, false, false));
                for (int turn = 0; turn < 3; turn++) {
                    Reply reply = api.request(new Api.Request("GET", "/", Clock.now() + 30).replyMax(1_000));
                    assert new String(reply.body, StandardCharsets.UTF_8).equals("abcde");
                    boolean isTimed = whole.equals(timed);
                    assert reply.timing().size() == (isTimed ? 2 : 0) : reply.timing();
                }
                assert server.connections == 1 : server.connections;
            }
        }
    }

    /** A connection that a node closes after its reply is opened anew; only one that was just opened is at fault. */
    public void testAConnectionThatWasClosedWhileIdleIsOpenedAnew() throws Exception {
        try (ServerSocket listening = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))) {
            Api api = new Api(new Address("http://127.0.0.1:" + listening.getLocalPort(), null, null, false, false));
            AtomicInteger connections = new AtomicInteger();
            Semaphore closed = new Semaphore(0);
            Thread thread = new Thread(() -> answerOnceEach(listening, connections, closed));
            thread.setDaemon(true);
            thread.start();
            for (int turn = 1; turn <= 3; turn++) {
                Api.Request request = new Api.Request("POST", "/", Clock.now() + 30);
                Reply reply = api.request(request.body(new byte[1 << 20], "application/octet-stream").replyMax(1_000));
                assert reply.status == 200 && connections.get() == turn : connections;
                closed.acquire();
            }
        }
        try (ServerSocket listening = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))) {
            Thread thread = new Thread(() -> {
                try {
                    listening.accept().close();
                } catch (IOException ended) {
                    return;
                }
            });
            thread.start();
            Api api = new Api(new Address("http://127.0.0.1:" + listening.getLocalPort(), null, null, false, false));
            Api.Request request = new Api.Request("POST", "/", Clock.now() + 30);
            try {
                api.request(request.body(new byte[16 << 20], "application/octet-stream").replyMax(1_000));
                assert false;
            } catch (ReplyBroken broken) {
                assert broken.getMessage().contains("closed the connection") : broken;
            }
        }
    }

    private static void answerOnceEach(ServerSocket listening, AtomicInteger connections, Semaphore closed) {
        while (true) {
            try (Socket socket = listening.accept()) {
                connections.incrementAndGet();
                InputStream in = socket.getInputStream();
                byte[] some = new byte[65_536];
                StringBuilder head = new StringBuilder();
                while (head.indexOf("\r\n\r\n") < 0) {
                    head.append((char) in.read());
                }
                for (int left = 1 << 20; left > 0; ) {
                    left -= in.read(some, 0, Math.min(left, some.length));
                }
                socket.getOutputStream().write((OK + "content-length: 2\r\n\r\nok").getBytes(StandardCharsets.UTF_8));
            } catch (IOException ended) {
                return;
            }
            closed.release();
        }
    }

    /** The token of a data folder is not sent to whoever listens there, but to the node alone. */
    public void testATokenIsNotSentWithoutProof() throws IOException {
        try (Server server = new Server(OK + "content-length: 16\r\n\r\n{\"proof\": \"00\"}\n")) {
            Api api = new Api(new Address(server.url(), "secret-token", null, true, false));
            try {
                api.request(new Api.Request("GET", "/", Clock.now() + 30));
                assert false;
            } catch (NodeUnproven unproven) {
                assert !server.heard.toString().contains("secret-token");
                assert server.heard.toString().contains("/v1/identity?nonce=");
            }
        }
    }

    /** A call that was cancelled ends, whatever the node does. */
    public void testACancelledRequestEnds() throws IOException {
        try (Server server = new Server("\0")) {
            Api api = new Api(new Address(server.url(), null, null, false, false));
            Cancel cancel = new Cancel();
            server.onRequest = cancel::cancel;
            try {
                api.request(new Api.Request("GET", "/", Clock.now() + 60).endedBy(cancel));
                assert false;
            } catch (CancellationException cancelled) {
                assert cancel.isCancelled() && !cancel.isBusy();
            }
        }
    }

    /** What is no address is said, and a token never leaves this machine in the clear. */
    public void testAddressesAreChecked() {
        String[] wrong = {"ftp://x:1", "http://x:1/path", "http://", "http://u@x:1", "http://x:1?a", "x y"};
        for (String url : wrong) {
            try {
                new Address(url, null, null, false, false);
                assert false : url;
            } catch (ConfigInvalid said) {
                assert said.code().equals("L9003");
            }
        }
        for (String url : new String[] {"http://x:65536", "https://x:0", "127.0.0.1:87010"}) {
            try {
                new Config(Collections.singletonMap("LIGHTERAGE_NODES", url)).found();
                assert false : url;
            } catch (ConfigInvalid said) {
                assert said.getMessage().contains("from 1 to 65535") : said;
            }
        }
        assert new Address("http://x:65535", null, null, false, false).port == 65_535;
        assert new Address("127.0.0.1:7", "t", null, false, false).url.equals("http://127.0.0.1:7");
        assert new Address("http://192.0.2.1:7", "t", null, false, true).token.equals("t");
        try {
            new Address("http://192.0.2.1:7", "t", null, false, false);
            assert false;
        } catch (ConfigInvalid said) {
            assert said.getMessage().contains("unencrypted");
        }
        Map<String, String> two = new LinkedHashMap<>();
        two.put("LIGHTERAGE_NODES", "127.0.0.1:1, 127.0.0.1:2");
        assert new Config(two).found().size() == 2;
        two.put("LIGHTER_TOKEN", "one");
        try {
            new Config(two).found();
            assert false;
        } catch (ConfigInvalid said) {
            assert said.getMessage().contains("one token") && !said.getMessage().contains("=one");
        }
        two.put("LIGHTERAGE_TOKENS", "127.0.0.1:1=a,http://127.0.0.1:2=b");
        assert new Config(two).found().get(1).token.equals("b");
        assert new Config(Collections.singletonMap("LIGHTER_DATA", "/nowhere")).found().isEmpty();
    }

    /** All who wait for a deployment are told that it has ended, also where it ended with an Error. */
    public void testAnErrorInADeploymentLeavesNobodyWaiting() {
        Error own = new StackOverflowError();
        Deployment work = new Deployment(() -> {
            throw own;
        });
        List<RuntimeException> told = new ArrayList<>();
        for (int turn = 0; turn < 2; turn++) {
            work.then(() -> told.add(work.problem()));
        }
        work.run();
        work.then(() -> told.add(work.problem()));
        assert told.size() == 3 : told;
        for (RuntimeException problem : told) {
            assert problem instanceof IllegalStateException && problem.getCause() == own : problem;
        }
        try {
            work.see();
            assert false;
        } catch (StackOverflowError thrown) {
            assert thrown == own;
        }
        Deployment good = new Deployment(() -> { });
        good.run();
        assert good.problem() == null;
    }

    /** The largest limits of a method are limits too. */
    public void testLimitsDoNotOverflow() {
        assert Node.replyBytesMax(1 << 20) == 2 << 20;
        assert Node.replyBytesMax(Integer.MAX_VALUE) == Integer.MAX_VALUE - 8;
        Limits limits = new Limits(Long.MAX_VALUE, 1 << 20, Integer.MAX_VALUE);
        String manifest = new String(
                new Code("app.Work::f", Collections.singletonMap("app.jar", new byte[1]), limits, false).manifest(),
                StandardCharsets.UTF_8);
        assert manifest.contains("\"cpu_ms\":86400000") : manifest;
    }

    private static LighterageException failed(String reply, double seconds) throws IOException {
        try (Server server = new Server(reply)) {
            Api api = new Api(new Address(server.url(), null, null, false, false));
            api.request(new Api.Request("GET", "/", Clock.now() + seconds).replyMax(1_000));
            throw new AssertionError("it is read: " + reply);
        } catch (LighterageException error) {
            return error;
        }
    }

    private static String repeated(String text, int times) {
        return String.join("", Collections.nCopies(times, text));
    }

    /** Answers each request of each connection with these bytes; after a zero byte it says nothing more. */
    private static final class Server implements AutoCloseable {
        private final ServerSocket listening = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
        private final byte[] reply;
        private final StringBuffer heard = new StringBuffer();
        private volatile int connections;
        private volatile Runnable onRequest = () -> { };

        private Server(String reply) throws IOException {
            this.reply = reply.getBytes(StandardCharsets.UTF_8);
            Thread thread = new Thread(this::serve);
            thread.setDaemon(true);
            thread.start();
        }

        private String url() {
            return "http://127.0.0.1:" + listening.getLocalPort();
        }

        private void serve() {
            try {
                while (true) {
                    Socket socket = listening.accept();
                    connections++;
                    serve(socket);
                }
            } catch (IOException closed) {
                return;
            }
        }

        private void serve(Socket socket) {
            try (Socket open = socket) {
                InputStream in = open.getInputStream();
                OutputStream out = open.getOutputStream();
                byte[] some = new byte[65_536];
                for (int got = in.read(some); got > 0; got = in.read(some)) {
                    heard.append(new String(some, 0, got, StandardCharsets.UTF_8));
                    boolean isSilent = reply[reply.length - 1] == 0;
                    out.write(reply, 0, reply.length - (isSilent ? 1 : 0));
                    onRequest.run();
                    if (!isSilent && !new String(reply, StandardCharsets.UTF_8).contains("abc")) {
                        return;
                    }
                    if (new String(reply, StandardCharsets.UTF_8).contains("short")) {
                        return;
                    }
                }
            } catch (IOException closed) {
                return;
            }
        }

        @Override
        public void close() throws IOException {
            listening.close();
        }
    }
}
