package lighterage.places;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.CountDownLatch;
import lighterage.CallTooLarge;
import lighterage.LighterageException;
import lighterage.NodeRefused;
import lighterage.ReplyBroken;
import lighterage.TimeIsUp;
import lighterage.code.Code;
import lighterage.json.Json;

/**
 * One node as a device sees it: whether it answers, what is deployed there, and calls to it. Safe for threads.
 *
 * <p>A node that fails is left alone for a while that doubles, up to half a minute.
 */
public final class Node {
    /** The media type of a frame. */
    private static final String FRAME = "application/vnd.lighter.frame";
    /** Seconds that a failed node is left alone: first, and at most. */
    private static final double AWAY_SECONDS = 0.5;
    private static final double AWAY_SECONDS_MAX = 30.0;
    /** Seconds that a probe may take, and a deployment (the base may have to be made for it). */
    private static final double PROBE_SECONDS = 3.0;
    private static final double DEPLOY_SECONDS = 600.0;
    /** Milliseconds until a node is asked again on which somebody else deploys the same method. */
    private static final long TURN_MS = 500;
    /** Bytes of a reply beside the result's own. */
    private static final int REPLY_EXTRA_BYTES = 1 << 20;
    private static final int ARRAY_BYTES_MAX = Integer.MAX_VALUE - 8;
    /** Characters of what a node says went wrong. */
    private static final int WORDS_MAX = 4_000;
    /** The function is not there, or was removed. */
    private static final String GONE = "L2001";
    /** Somebody else deploys the method: it may be the same code, from another device. */
    private static final String IS_DEPLOYED = "L2012";
    /** What a call's arguments or result are too large for. An image that is too large is of its deployment. */
    private static final Set<String> TOO_LARGE = new HashSet<>(Arrays.asList("L3006", "L3011"));
    /** Statuses of a deployment that trying again does not change. */
    private static final Set<Integer> FINAL = new HashSet<>(Arrays.asList(400, 401, 403, 413, 422));

    /** Its address, and the address without the scheme, by which it is called. */
    public final String url;
    public final String name;
    private final Api api;
    private final ConcurrentMap<String, Deployed> deployed = new ConcurrentHashMap<>();
    private volatile double roundTrip = Double.NaN;
    private volatile double bytesPerSecond;
    private volatile double heardAt;
    private volatile double awayUntil;
    private volatile String problem = "";
    private int failures;
    private boolean isWatched;

    /** What is known of one method on the node. */
    private static final class Deployed {
        private volatile boolean isThere;
        private volatile LighterageException problem;
        /** The deployment that goes on, or was the last one. */
        private volatile Deployment work;
    }

    Node(Address address) {
        this.url = address.url;
        this.name = address.name();
        this.api = new Api(address);
    }

    /** Asks the node who it is, and how far it is. Throws what a request throws. */
    void ask() {
        json(new Api.Request("GET", "/v1/node", Clock.now() + PROBE_SECONDS));
        // The second one finds the connection open.
        double began = Clock.now();
        Object said = json(new Api.Request("GET", "/v1/node", began + PROBE_SECONDS));
        double took = Clock.now() - began;
        Object isolation = said instanceof Map ? ((Map<?, ?>) said).get("isolation") : null;
        if (!(isolation instanceof List)) {
            throw new ReplyBroken(url + " sent another answer than was asked for");
        }
        if (!((List<?>) isolation).contains("process")) {
            throw new NodeRefused(422, "L2011", "node " + name + " runs no Java: it offers " + isolation, "");
        }
        bytesPerSecond = rate(took);
        roundTrip = took;
        answered();
    }

    /** Loads the API's description, which every node has and which is large enough to say something. */
    private double rate(double took) {
        Reply reply = api.request(new Api.Request("GET", "/v1/openapi.json", Clock.now() + PROBE_SECONDS));
        double all = reply.wholeAt - reply.beganAt;
        // A round trip that was late says nothing of this one.
        return reply.body.length / Math.max(Math.max(all - took, all / 4), 1e-6) + 1.0;
    }

    /** Whether it has said who it is. */
    public boolean isKnown() {
        return !Double.isNaN(roundTrip);
    }

    /** What went wrong when it was asked last, to be read after its name; empty: nothing that is known. */
    public String problem() {
        return problem;
    }

    double roundTrip() {
        return roundTrip;
    }

    double bytesPerSecond() {
        return bytesPerSecond;
    }

    /** Whether it failed lately and should be left alone. */
    public boolean isAway(double now) {
        return now < awayUntil;
    }

    /** Whether it is time to ask it again; says so once. */
    synchronized boolean isUnheard(double now, double seconds) {
        boolean isOld = now - heardAt >= seconds && !isAway(now);
        heardAt = isOld ? now : heardAt;
        return isOld;
    }

    /** It did not answer, or nonsense: leaves it alone for a while, and says for how many seconds. */
    synchronized double failed(LighterageException error) {
        problem = error.getMessage();
        double pause = Math.min(AWAY_SECONDS * Math.pow(2, Math.min(failures, 20)), AWAY_SECONDS_MAX);
        failures++;
        awayUntil = Clock.now() + pause;
        api.close();
        return pause;
    }

    /** Whether it is to be asked in the background whether it is back: only once at a time. */
    synchronized boolean beginsWatch() {
        boolean begins = !isWatched;
        isWatched = true;
        return begins;
    }

    synchronized void endWatch() {
        isWatched = false;
    }

    private synchronized void answered() {
        heardAt = Clock.now();
        failures = 0;
        awayUntil = 0.0;
        problem = "";
    }

    /** Whether these names and addresses, or none for all nodes, mean this one. */
    public boolean isAmong(Set<String> on) {
        return on.isEmpty() || on.contains(name) || on.contains(url);
    }

    /** Whether the method is deployed, as far as is known here. */
    public boolean isReady(String function) {
        Deployed found = deployed.get(function);
        return found != null && found.isThere;
    }

    /** Why the method cannot be deployed here, if that was tried and would fail again; else null. */
    public LighterageException refusal(String function) {
        Deployed found = deployed.get(function);
        return found == null ? null : found.problem;
    }

    /** Seconds for which the method has been on its way here; 0 where it is not. */
    public double awaited(String function, double now) {
        Deployed found = deployed.get(function);
        Deployment work = found == null ? null : found.work;
        return work == null || work.isDone() ? 0.0 : now - work.began;
    }

    /**
     * Deploys the method, unless it is there. All who ask meanwhile wait for the same deployment.
     *
     * <p>Throws what a request throws. TimeIsUp where the method is not there by `until`, of {@link Clock}, and
     * CancellationException where it is no longer wanted: the deployment goes on.
     */
    public void prepare(Code code, double until, Cancel cancel) {
        Deployment work = begin(code);
        if (work == null) {
            return;
        }
        CountDownLatch ready = new CountDownLatch(1);
        Runnable then = ready::countDown;
        work.then(then);
        try {
            cancel.await(ready, until);
        } finally {
            work.forget(then);
        }
        if (!work.isDone()) {
            TimeIsUp late = new TimeIsUp(url + " did not get the method in time; it goes on getting it");
            late.setOfDeployment();
            throw late;
        }
        work.see();
    }

    /** The same without waiting. `then` is told what kept the method away, or null, once that is known. */
    public void prepareLater(Code code, Prepared then) {
        Deployment work = begin(code);
        if (work == null) {
            then.is(null);
            return;
        }
        work.then(() -> then.is(work.problem()));
    }

    /** Who wants to know how a deployment ended. */
    public interface Prepared {
        /** It ended with this; null: the method is there. */
        void is(RuntimeException problem);
    }

    /** The deployment that goes on, or a new one in the background, because it may take longer than anybody waits. */
    private Deployment begin(Code code) {
        Deployed fresh = new Deployed();
        Deployed known = deployed.putIfAbsent(code.name, fresh);
        Deployed entry = known == null ? fresh : known;
        synchronized (entry) {
            if (entry.isThere) {
                return null;
            }
            if (entry.work == null || entry.work.isDone()) {
                Deployment work = new Deployment(() -> put(code, entry));
                Background.deployment(work);
                entry.work = work;
            }
            return entry.work;
        }
    }

    private void put(Code code, Deployed entry) {
        try {
            deployInTurn(code);
        } catch (NodeRefused refused) {
            refused.setOfDeployment();
            entry.problem = FINAL.contains(refused.status) ? refused : null;
            throw refused;
        } catch (TimeIsUp late) {
            late.setOfDeployment();
            throw late;
        }
        entry.problem = null;
        entry.isThere = true;
    }

    /**
     * Calls a method with a frame; the reply's body is one. Deploys it again where it is gone.
     *
     * <p>Throws what a request or `prepare` throws.
     */
    public Reply call(Code code, byte[] frame, double deadline, Cancel cancel) {
        for (boolean isLast = false; ; isLast = true) {
            Deployed asked = deployed.get(code.name);
            Api.Request request = new Api.Request("POST", "/v1/functions/" + code.name + "/call", deadline)
                    .body(frame, FRAME)
                    .replyMax(replyBytesMax(code.limits.bodyBytes))
                    .endedBy(cancel);
            Reply reply = api.request(request);
            if (reply.status == 200) {
                answered();
                return reply;
            }
            LighterageException error = refused(reply);
            if (isLast || !error.code().equals(GONE)) {
                throw error;
            }
            if (asked != null) {
                // Another thread may have begun to deploy it anew.
                deployed.remove(code.name, asked);
            }
            prepare(code, deadline, cancel);
        }
    }

    /** Bytes of the whole reply to a call whose result has so many at most; no array of Java is longer. */
    static int replyBytesMax(int bodyBytes) {
        return (int) Math.min((long) bodyBytes + REPLY_EXTRA_BYTES, ARRAY_BYTES_MAX);
    }

    void close() {
        api.close();
    }

    /** Deploys it, after whoever else deploys it now. */
    private void deployInTurn(Code code) {
        double deadline = Clock.now() + DEPLOY_SECONDS;
        while (true) {
            try {
                deploy(code, deadline);
                return;
            } catch (NodeRefused refused) {
                if (!refused.code().equals(IS_DEPLOYED) || Clock.now() + TURN_MS / 1e3 >= deadline) {
                    throw refused;
                }
                try {
                    Thread.sleep(TURN_MS);
                } catch (InterruptedException ended) {
                    throw refused;
                }
            }
        }
    }

    private void deploy(Code code, double deadline) {
        String image = "/v1/images/" + code.sha256;
        if (api.request(new Api.Request("HEAD", image, deadline)).status != 200) {
            json(new Api.Request("PUT", image, deadline).body(code.bundle, "application/octet-stream"));
        }
        Api.Request request = new Api.Request("POST", "/v1/deployments", deadline);
        Reply reply = api.request(request.body(code.manifest(), "application/json"));
        if (reply.status != 200) {
            throw refused(reply);
        }
        String text = new String(reply.body, StandardCharsets.UTF_8).trim();
        Map<?, ?> last = map(parsed(text.substring(text.lastIndexOf('\n') + 1)));
        if (!"done".equals(last.get("step"))) {
            throw refused(status(last.get("problem")), last.get("problem"));
        }
        removeOld(code);
    }

    /** Removes versions of the method beyond those kept, the oldest first. What fails is left for the next time. */
    private void removeOld(Code code) {
        try {
            double deadline = Clock.now() + PROBE_SECONDS;
            List<Map<?, ?>> family = new ArrayList<>();
            for (Object one : (List<?>) json(new Api.Request("GET", "/v1/functions", deadline))) {
                String found = (String) map(one).get("name");
                if (found.startsWith(code.family) && !found.equals(code.name) && found.matches("[A-Za-z0-9-]+")) {
                    family.add(map(one));
                }
            }
            Collections.sort(family, NEWEST_FIRST);
            for (int at = Code.VERSIONS_KEPT - 1; at < family.size(); at++) {
                api.request(new Api.Request("DELETE", "/v1/functions/" + family.get(at).get("name"), deadline));
            }
        } catch (LighterageException | ClassCastException | NullPointerException strange) {
            return;
        }
    }

    private static final Comparator<Map<?, ?>> NEWEST_FIRST = (one, other) -> {
        long first = deployedMs(one);
        long second = deployedMs(other);
        return first > second ? -1 : first < second ? 1 : 0;
    };

    private static long deployedMs(Map<?, ?> function) {
        long newest = 0;
        for (Object version : (List<?>) function.get("versions")) {
            newest = Math.max(newest, ((Number) ((Map<?, ?>) version).get("deployed_ms")).longValue());
        }
        return newest;
    }

    private Object json(Api.Request request) {
        Reply reply = api.request(request);
        if (reply.status < 200 || reply.status >= 300) {
            throw refused(reply);
        }
        return reply.body.length == 0 ? null : parsed(new String(reply.body, StandardCharsets.UTF_8));
    }

    private Object parsed(String text) {
        try {
            return Json.read(text);
        } catch (IllegalArgumentException strange) {
            throw new ReplyBroken(url + " sent what is no JSON");
        }
    }

    private Map<?, ?> map(Object value) {
        if (value instanceof Map) {
            return (Map<?, ?>) value;
        }
        throw new ReplyBroken(url + " sent another answer than was asked for");
    }

    private static LighterageException refused(Reply reply) {
        Object said = null;
        try {
            boolean isRead = reply.body.length > 0 && reply.body.length <= Api.BODY_BYTES_MAX;
            said = isRead ? Json.read(new String(reply.body, StandardCharsets.UTF_8)) : null;
        } catch (IllegalArgumentException strange) {
            // Then the status says it all.
        }
        return refused(reply.status, said);
    }

    /** The status of a problem that came in a stream, whose own status is that of its beginning. */
    private static int status(Object said) {
        Object status = said instanceof Map ? ((Map<?, ?>) said).get("status") : null;
        long number = status instanceof Long ? (Long) status : 0;
        return number >= 400 && number < 600 ? (int) number : 422;
    }

    private static LighterageException refused(int status, Object said) {
        Map<?, ?> document = said instanceof Map ? (Map<?, ?>) said : Collections.emptyMap();
        String title = text(document.get("title"), "the node answered " + status);
        String detail = text(document.get("detail"), title);
        String code = text(document.get("code"), "L9002");
        if (TOO_LARGE.contains(code)) {
            return new CallTooLarge(detail);
        }
        boolean isCode = code.matches("L[0-9]{4}");
        return new NodeRefused(status, isCode ? code : "L9002", detail, text(document.get("hint"), ""));
    }

    private static String text(Object value, String other) {
        if (!(value instanceof String) || ((String) value).isEmpty()) {
            return other;
        }
        String text = (String) value;
        return text.length() > WORDS_MAX ? text.substring(0, WORDS_MAX) : text;
    }
}
