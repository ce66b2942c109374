package bench;

import java.io.IOException;
import lighterage.decide.RecordsTest;

/** Replays what the Python engine decided, without assertions, and prints the share of decisions that are the same. */
public final class Choices {
    private Choices() {}

    public static void main(String[] arguments) throws IOException {
        new RecordsTest().testEveryChoiceIsThatOfThePythonEngine();
    }
}
