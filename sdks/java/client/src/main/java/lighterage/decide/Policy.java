package lighterage.decide;

/** How the engine decides. */
public final class Policy {
    /** 3 % hysteresis, 2 % of all time for trying places, one call in ten at two places, energy without weight. */
    public static final Policy DEFAULT = new Policy(0.03, 0.02, 0.1, Energy.DEFAULT);

    final double hysteresis;
    final double exploreBudget;
    final double raceBudget;
    final Energy energy;

    /**
     * @param hysteresis another place must be better by this part of the time to take over
     * @param exploreBudget part of all time that trying places may cost
     * @param raceBudget part of the calls that may be raced, and of all time that may be computed in vain for it
     * @param energy what this machine draws
     */
    public Policy(double hysteresis, double exploreBudget, double raceBudget, Energy energy) {
        this.hysteresis = hysteresis;
        this.exploreBudget = exploreBudget;
        this.raceBudget = raceBudget;
        this.energy = energy;
    }
}
