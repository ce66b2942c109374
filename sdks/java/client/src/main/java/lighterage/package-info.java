/**
 * Runs a method wherever it ends first: on this device, or on a node nearby.
 *
 * <p>{@link lighterage.Offload} marks a method, {@link lighterage.Lighterage} names nodes. The other packages are what
 * generated code and this library are made of; {@code lighterage.decide} is the engine by itself.
 */
package lighterage;
