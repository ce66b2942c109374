package lighterage;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import lighterage.decide.Decision;
import lighterage.decide.Prediction;
import lighterage.decide.Term;

/** A decision, and what it rests on. Printed, it is a table. */
public final class Explanation {
    private static final String[] STAGES = {"encode", "up", "round trip", "queue", "run", "down", "decode"};

    /** `package.Class::method`. */
    public final String function;
    /** Where it would run, and what it would take at each place. */
    public final Decision decision;
    /** What its work is taken to grow with, and the bytes of its arguments. */
    public final double size;
    public final double bytes;
    /** Why nodes are no places for it; one line each. */
    public final List<String> notes;

    /** What was decided of a call. */
    public Explanation(String function, Decision decision, double size, double bytes, List<String> notes) {
        this.function = function;
        this.decision = decision;
        this.size = size;
        this.bytes = bytes;
        this.notes = Collections.unmodifiableList(notes);
    }

    @Override
    public String toString() {
        StringBuilder out = new StringBuilder();
        out.append(function).append(": ").append(decision.place).append(", ").append(decision.choice.reason);
        String work = String.format(Locale.ROOT, "%,.0f", size);
        out.append("\n  work grows with ").append(work).append(", arguments are ").append(bytes(bytes));
        List<String[]> rows = new ArrayList<>();
        rows.add(heads());
        for (Prediction prediction : decision.predictions) {
            rows.add(row(prediction));
        }
        for (String[] row : rows) {
            out.append('\n').append(line(row, rows));
        }
        for (String note : notes) {
            out.append("\n  ").append(note);
        }
        return out.toString();
    }

    private static String[] heads() {
        String[] heads = new String[STAGES.length + 3];
        heads[0] = "  place";
        System.arraycopy(STAGES, 0, heads, 1, STAGES.length);
        heads[STAGES.length + 1] = "prepare";
        heads[STAGES.length + 2] = "expected";
        return heads;
    }

    private String[] row(Prediction prediction) {
        String[] cells = heads();
        cells[0] = (prediction.place.equals(decision.place) ? "▸ " : "  ") + prediction.place;
        for (int stage = 0; stage < STAGES.length; stage++) {
            cells[stage + 1] = "";
            for (Term term : prediction.terms()) {
                cells[stage + 1] = term.name.equals(STAGES[stage]) ? seconds(term.seconds) : cells[stage + 1];
            }
        }
        cells[STAGES.length + 1] = prediction.wait > 0 ? seconds(prediction.wait) : "";
        cells[STAGES.length + 2] = seconds(prediction.seconds) + " ± " + seconds(prediction.spread);
        return cells;
    }

    /** A row, in columns that something stands in. */
    private static String line(String[] row, List<String[]> rows) {
        StringBuilder line = new StringBuilder();
        for (int column = 0; column < row.length; column++) {
            int width = 0;
            boolean isUsed = false;
            for (String[] other : rows) {
                width = Math.max(width, other[column].length());
                isUsed |= other != rows.get(0) && !other[column].isEmpty();
            }
            if (isUsed) {
                String format = column == 0 ? "%-" + width + "s" : "  %" + width + "s";
                line.append(String.format(format, row[column]));
            }
        }
        return line.toString();
    }

    private static String seconds(double seconds) {
        if (seconds >= 1) {
            return String.format(Locale.ROOT, "%.3g s", seconds);
        }
        boolean isLong = seconds >= 1e-3;
        return String.format(Locale.ROOT, isLong ? "%.3g ms" : "%.3g µs", seconds * (isLong ? 1e3 : 1e6));
    }

    private static String bytes(double count) {
        String[] units = {" bytes", " KiB", " MiB", " GiB"};
        int unit = 0;
        double left = count;
        while (left >= 1_024 && unit < units.length - 1) {
            left /= 1_024;
            unit++;
        }
        return String.format(Locale.ROOT, unit == 0 ? "%.0f" : "%.3g", left) + units[unit];
    }
}
