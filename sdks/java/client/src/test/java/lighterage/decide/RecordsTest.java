package lighterage.decide;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeSet;
import lighterage.json.Json;

/** What the Python engine decided, step by step, this one decides too: `contracts/conformance/decide`. */
public final class RecordsTest {
    private static final double PRECISION = 1e-9;

    private Engine engine;
    private int same;
    private final List<Decision> decisions = new ArrayList<>();

    /** Every decision of every record: the same place, reason and rival, and the same numbers. */
    public void testEveryChoiceIsThatOfThePythonEngine() throws IOException {
        int files = 0;
        int choices = 0;
        int alike = 0;
        for (Path file : files("decide")) {
            Map<String, Object> record = map(Json.read(text(file)));
            RecordsTest replay = new RecordsTest();
            replay.engine = new Engine(policy(map(record.get("policy"))));
            for (Object step : (List<?>) record.get("steps")) {
                replay.step(new Step(map(step)));
            }
            choices += replay.decisions.size();
            alike += replay.same;
            files++;
        }
        // Without assertions, as in a benchmark, it is the share that says how many were not alike.
        System.out.println("java_python_same_choices " + (double) alike / choices + " (" + choices + " decisions)");
        assert files == 7 : files;
        assert choices > 1_000 : choices;
        assert alike == choices : alike + " of " + choices;
    }

    /** Levels and curves alone: `contracts/conformance/estimate`. */
    public void testEveryEstimateIsThatOfThePythonEngine() throws IOException {
        int files = 0;
        for (Path file : files("estimate")) {
            Map<String, Object> record = map(Json.read(text(file)));
            Step of = new Step(map(record.get("of")));
            Level level = null;
            Curve curve = null;
            if (of.text("kind").equals("level")) {
                level = new Level(of.number("prior"), of.number("variance"), of.number("drift"));
            } else {
                curve = Curve.open(of.number("slope"), of.number("variance"), of.number("slope_variance"));
            }
            for (Object one : (List<?>) record.get("steps")) {
                Step step = new Step(map(one));
                Guess guess;
                if (level != null) {
                    level.observe(step.number("value"), step.number("now"), step.number("noise"));
                    guess = level.guess(step.number("now") + step.number("later"));
                } else {
                    curve.observe(step.number("size"), step.number("value"), step.number("noise"));
                    guess = curve.guess(step.number("asked"));
                }
                Step wanted = new Step(map(step.fields.get("expected")));
                is(file + " log", guess.log, wanted.number("log"));
                is(file + " variance", guess.variance, wanted.number("variance"));
                is(file + " noise", guess.noise, wanted.number("noise"));
            }
            files++;
        }
        assert files == 5 : files;
    }

    /** Against values of the error function that a table has. */
    public void testTheErrorFunctionIsRightToTwelveDigits() {
        double[][] table = {
            {0.0, 1.0},
            {0.5, 0.4795001221869535},
            {1.0, 0.15729920705028513},
            {2.4999, 0.0004071699003334514},
            {2.5, 0.0004069520174449589},
            {3.0, 2.2090496998585438e-05},
            {5.0, 1.5374597944280351e-12},
            {-1.0, 1.842700792949715},
        };
        for (double[] row : table) {
            assert Math.abs(Normal.erfc(row[0]) / row[1] - 1) < 1e-12 : row[0] + ": " + Normal.erfc(row[0]);
        }
    }

    private void step(Step step) {
        switch (step.text("do")) {
            case "place":
                engine.place(
                        step.text("name"),
                        step.number("speed"),
                        step.number("round_trip"),
                        step.number("bytes_per_second"));
                break;
            case "forget":
                engine.forget(step.text("name"));
                break;
            case "helper":
                engine.observeHelper(step.number("seconds"));
                break;
            case "probe":
                engine.place(step.text("name")).observeProbe(step.number("bytes_per_second"), step.number("now"));
                break;
            case "sent":
                long bytes = (long) step.number("bytes");
                engine.place(step.text("name")).observeUp(bytes, step.number("seconds"), step.number("now"));
                break;
            case "decide":
                decide(step);
                break;
            default:
                observe(step);
        }
    }

    private void observe(Step step) {
        String function = step.text("function");
        double size = step.number("size");
        double seconds = step.number("seconds");
        double now = step.number("now");
        Decision decision = step.fields.containsKey("decision") ? decisions.get((int) step.number("decision")) : null;
        switch (step.text("do")) {
            case "local":
                engine.observeLocal(function, size, seconds, decision, step.is("is_disturbed"));
                break;
            case "result":
                engine.observeResult(function, size, step.number("bytes"));
                break;
            case "remote":
                Asked asked = new Asked(function, size);
                Stages stages = stages(new Step(map(step.fields.get("stages"))));
                engine.observeRemote(asked, step.text("name"), stages, now, decision, step.is("is_disturbed"));
                break;
            case "local longer":
                engine.observeLocalLonger(function, size, seconds);
                break;
            case "remote longer":
                engine.observeRemoteLonger(function, size, decision.at(step.text("name")), seconds, now);
                break;
            case "stopped":
                engine.observeStopped(function, step.is("is"));
                break;
            case "held":
                engine.observeHeld(function, step.is("is"));
                break;
            case "raced":
                double there = step.number("there_seconds");
                engine.observeRaced(function, decision, step.text("winner"), there, step.number("extra_seconds"));
                break;
            default:
                throw new AssertionError(step.text("do"));
        }
    }

    private void decide(Step step) {
        List<String> places = new ArrayList<>();
        for (Object place : (List<?>) step.fields.get("places")) {
            places.add((String) place);
        }
        Question question = new Question(
                step.text("function"), step.number("size"), step.number("bytes_up"), places, step.number("now"));
        question.deadline = step.fields.containsKey("deadline") ? step.number("deadline") : Double.NaN;
        question.mayRunHere = step.is("may_run_here");
        question.mayRace = step.is("may_race");
        question.isDisturbed = step.is("is_disturbed");
        Map<String, Double> waits = new LinkedHashMap<>();
        if (step.fields.containsKey("waits")) {
            for (Map.Entry<String, Object> entry : map(step.fields.get("waits")).entrySet()) {
                waits.put(entry.getKey(), ((Number) entry.getValue()).doubleValue());
            }
        }
        question.waits = waits;
        Decision decision = engine.decide(question);
        String name = question.function + ", decision " + decisions.size();
        decisions.add(decision);
        same += isSame(decision, new Step(map(step.fields.get("expected")))) ? 1 : 0;
        check(name, decision, new Step(map(step.fields.get("expected"))));
    }

    private static boolean isSame(Decision decision, Step wanted) {
        return decision.place.equals(wanted.text("place"))
                && decision.choice.name().equals(wanted.text("choice"))
                && Objects.equals(decision.rival, wanted.fields.get("rival"));
    }

    private static void check(String name, Decision decision, Step wanted) {
        assert decision.place.equals(wanted.text("place")) : name + " is at " + decision.place;
        assert decision.choice.name().equals(wanted.text("choice")) : name + " is " + decision.choice;
        Object rival = wanted.fields.get("rival");
        assert rival == null ? decision.rival == null : rival.equals(decision.rival) : name + " has rival " + rival;
        is(name + " after", decision.rivalAfter, wanted.number("rival_after"));
        List<?> predictions = (List<?>) wanted.fields.get("predictions");
        assert predictions.size() == decision.predictions.size();
        for (int index = 0; index < predictions.size(); index++) {
            Step one = new Step(map(predictions.get(index)));
            Prediction said = decision.predictions.get(index);
            is(name + " seconds", said.seconds, one.number("seconds"));
            is(name + " spread", said.spread, one.number("spread"));
            is(name + " doubt", said.doubt, one.number("doubt"));
            is(name + " joules", said.joules, one.number("joules"));
            is(name + " best case", said.bestCase, one.number("best_case"));
        }
    }

    private static void is(String name, double said, double wanted) {
        double off = Math.abs(said - wanted);
        assert off <= PRECISION * Math.abs(wanted) + 1e-12 : name + " is " + said + " and not " + wanted;
    }

    private static Stages stages(Step step) {
        Stages stages = new Stages();
        stages.encode = step.number("encode");
        stages.up = step.number("up");
        stages.roundTrip = step.fields.containsKey("round_trip") ? step.number("round_trip") : Double.NaN;
        stages.queue = step.number("queue");
        stages.run = step.number("run");
        stages.down = step.number("down");
        stages.decode = step.number("decode");
        stages.bytesUp = (long) step.number("bytes_up");
        stages.bytesDown = (long) step.number("bytes_down");
        stages.bytesEstimated = (long) step.number("bytes_estimated");
        stages.roundTripExpected = step.number("round_trip_expected");
        return stages;
    }

    private static Policy policy(Map<String, Object> said) {
        Step policy = new Step(said);
        Step watts = new Step(map(said.get("energy")));
        Energy energy = new Energy(
                watts.number("compute"), watts.number("radio"), watts.number("wait"), watts.number("weight"));
        return new Policy(
                policy.number("hysteresis"), policy.number("explore_budget"), policy.number("race_budget"), energy);
    }

    /** One line of a record; what is not said is 0 or false. */
    private static final class Step {
        private final Map<String, Object> fields;

        private Step(Map<String, Object> fields) {
            this.fields = fields;
        }

        private double number(String name) {
            Object found = fields.get(name);
            return found == null ? 0.0 : ((Number) found).doubleValue();
        }

        private boolean is(String name) {
            return Boolean.TRUE.equals(fields.get(name));
        }

        private String text(String name) {
            return (String) fields.get(name);
        }
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> map(Object value) {
        return (Map<String, Object>) value;
    }

    private static String text(Path file) throws IOException {
        return new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
    }

    private static TreeSet<Path> files(String name) throws IOException {
        Path folder = Paths.get(System.getProperty("lighterage.root"), "contracts/conformance", name);
        TreeSet<Path> found = new TreeSet<>();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*.json")) {
            for (Path file : files) {
                found.add(file);
            }
        }
        return found;
    }
}
