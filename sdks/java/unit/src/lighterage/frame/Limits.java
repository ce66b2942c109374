package lighterage.frame;

/** What a reader accepts; applied before anything is allocated. */
public record Limits(long totalBytes, long metaBytes, long buffers, int depth, long values) {
    /** Those of the contract. */
    public static final Limits DEFAULT = new Limits(256L << 20, 1 << 20, 1_024, 32, 65_536);
}
