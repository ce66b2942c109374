package lighterage.decide;

/** What one remote call took, in seconds, and how many bytes it sent and received. */
public final class Stages {
    /** Writing the arguments here. */
    public double encode;
    /** The arguments on the network. */
    public double up;
    /** Not a number where it cannot be told from the transfer. */
    public double roundTrip = Double.NaN;
    /** Everything on the node beside the function. */
    public double queue;
    /** The function. */
    public double run;
    /** The result on the network. */
    public double down;
    /** Reading the result here. */
    public double decode;
    /** The call on the wire, and its reply. */
    public long bytesUp;
    public long bytesDown;
    /** What `bytesUp` was taken to be before; 0 where it was known. */
    public long bytesEstimated;
    /** What was taken off the transfer as its round trip, where that is not a number. */
    public double roundTripExpected;

    /** All of them. */
    public double seconds() {
        return encode + up + (Double.isNaN(roundTrip) ? roundTripExpected : roundTrip) + queue + run + down + decode;
    }
}
