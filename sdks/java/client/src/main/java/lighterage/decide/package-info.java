/**
 * Where to run a call: pure decisions, told the time, the sizes and what was measured.
 *
 * <p>No I/O, no clock and no threads. It is the engine of the Python client, number for number: both replay the records
 * of {@code contracts/conformance/decide} with the same choices. {@code docs/how-it-decides.md} has the formulas and
 * their sources.
 *
 * <pre>
 * Level, Curve   what a stage will take, and how sure that is
 * Place, Work    the stages of one place, added up to a Prediction
 * Engine         the choice: hysteresis, exploration, races, hedging
 * Races          how much may run twice
 * </pre>
 */
package lighterage.decide;
