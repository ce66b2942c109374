package app;

import lighterage.Offload;

/** A method of which no code was made yet. */
final class Fresh {
    private Fresh() {}

    @Offload
    static int added(int one, int other) {
        return one + other;
    }
}
