package workloads;

import java.util.Random;

/**
 * Solves a dense system of linear equations, as Dongarra's benchmark does: Gauss with the largest pivot of each column.
 */
public final class Linpack {
    /** Equations of each size. */
    private static final int SMALL = 200;
    private static final int MEDIUM = 500;
    private static final int LARGE = 1_000;
    private static final int EQUATIONS_MAX = 4_000;
    private static final double EPSILON = Math.ulp(1.0);

    private Linpack() {}

    /**
     * What came out of it.
     *
     * <p>`residual` is normed by the size of the problem: a few units mean that the solution is as right as the numbers
     * allow. `operations` are additions and multiplications.
     */
    public static final class Result {
        public int equations;
        public double residual;
        public double operations;
    }

    public static Result small() {
        return run(SMALL, 1);
    }

    public static Result medium() {
        return run(MEDIUM, 1);
    }

    public static Result large() {
        return run(LARGE, 1);
    }

    /** So many equations, at most 4,000, of random numbers between -0.5 and 0.5 that this seed gives. */
    public static Result run(int equations, long seed) {
        if (equations < 1 || equations > EQUATIONS_MAX) {
            throw new IllegalArgumentException(equations + " equations, of 1 to " + EQUATIONS_MAX);
        }
        double[][] matrix = matrix(equations, seed);
        // The sums of the rows: each unknown is 1.
        double[] right = sums(matrix);
        double[] solution = right.clone();
        solve(matrix, solution);
        Result result = new Result();
        result.equations = equations;
        result.residual = residual(matrix(equations, seed), solution, right);
        double n = equations;
        result.operations = 2.0 * n * n * n / 3.0 + 2.0 * n * n;
        return result;
    }

    private static double[][] matrix(int equations, long seed) {
        Random random = new Random(seed);
        double[][] matrix = new double[equations][equations];
        for (double[] row : matrix) {
            for (int column = 0; column < equations; column++) {
                row[column] = random.nextDouble() - 0.5;
            }
        }
        return matrix;
    }

    private static double[] sums(double[][] matrix) {
        double[] sums = new double[matrix.length];
        for (int row = 0; row < matrix.length; row++) {
            for (double number : matrix[row]) {
                sums[row] += number;
            }
        }
        return sums;
    }

    /** Solves in place: `vector` is the right side first and the solution then. */
    static void solve(double[][] matrix, double[] vector) {
        int count = vector.length;
        for (int at = 0; at < count; at++) {
            int pivot = at;
            for (int row = at + 1; row < count; row++) {
                pivot = Math.abs(matrix[row][at]) > Math.abs(matrix[pivot][at]) ? row : pivot;
            }
            double[] above = matrix[pivot];
            matrix[pivot] = matrix[at];
            matrix[at] = above;
            double right = vector[pivot];
            vector[pivot] = vector[at];
            vector[at] = right;
            if (above[at] == 0.0) {
                throw new ArithmeticException("the equations have no single solution");
            }
            for (int row = at + 1; row < count; row++) {
                double[] below = matrix[row];
                double factor = below[at] / above[at];
                for (int column = at; column < count; column++) {
                    below[column] -= factor * above[column];
                }
                vector[row] -= factor * right;
            }
        }
        for (int at = count - 1; at >= 0; at--) {
            for (int column = at + 1; column < count; column++) {
                vector[at] -= matrix[at][column] * vector[column];
            }
            vector[at] /= matrix[at][at];
        }
    }

    /** `‖Ax − b‖ / (n ‖A‖ ‖x‖ ε)`, in the largest norm. */
    private static double residual(double[][] matrix, double[] solution, double[] right) {
        double worst = 0.0;
        double largest = 0.0;
        double longest = 0.0;
        for (int row = 0; row < right.length; row++) {
            double off = -right[row];
            for (int column = 0; column < right.length; column++) {
                off += matrix[row][column] * solution[column];
                largest = Math.max(largest, Math.abs(matrix[row][column]));
            }
            worst = Math.max(worst, Math.abs(off));
            longest = Math.max(longest, Math.abs(solution[row]));
        }
        return worst / (right.length * largest * longest * EPSILON);
    }
}
