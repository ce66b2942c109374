package lighterage.droid.natives;

import java.util.function.DoubleUnaryOperator;

/** Java's own are lambdas, whose first use costs milliseconds of each start: colour spaces are made when it starts. */
public final class Operators {
    private Operators() {}

    public static DoubleUnaryOperator identity() {
        return new Identity();
    }

    public static DoubleUnaryOperator andThen(DoubleUnaryOperator first, DoubleUnaryOperator second) {
        return new Both(first, second);
    }

    private static final class Identity implements DoubleUnaryOperator {
        @Override
        public double applyAsDouble(double operand) {
            return operand;
        }
    }

    private static final class Both implements DoubleUnaryOperator {
        private final DoubleUnaryOperator first;
        private final DoubleUnaryOperator second;

        Both(DoubleUnaryOperator first, DoubleUnaryOperator second) {
            this.first = first;
            this.second = second;
        }

        @Override
        public double applyAsDouble(double operand) {
            return second.applyAsDouble(first.applyAsDouble(operand));
        }
    }
}
