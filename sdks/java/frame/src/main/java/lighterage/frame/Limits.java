package lighterage.frame;

/** What a reader accepts; applied before anything is allocated. */
public final class Limits {
    /** Those of the contract: 256 MiB, 1 MiB of meta, 1,024 buffers, 32 levels, 65,536 values. */
    public static final Limits DEFAULT = new Limits(256L << 20, 1 << 20, 1_024, 32, 65_536);

    /** Those of a call of a method and its result, on both sides; a writer writes no more values than that. */
    public static final Limits CALL = new Limits(Integer.MAX_VALUE, 256L << 20, 65_536, 128, 8_000_000);

    final long totalBytes;
    final long metaBytes;
    final long buffers;
    final int depth;
    final long values;

    /**
     * Others than the contract's.
     *
     * @param totalBytes of the whole frame
     * @param metaBytes of its typed part
     * @param buffers beside it
     * @param depth values around a value, itself included; at most 128
     * @param values in the typed part
     */
    public Limits(long totalBytes, long metaBytes, long buffers, int depth, long values) {
        this.totalBytes = totalBytes;
        this.metaBytes = metaBytes;
        this.buffers = buffers;
        this.depth = depth;
        this.values = values;
    }

    /** Bytes of the whole frame. */
    public long totalBytes() {
        return totalBytes;
    }

    /** Bytes of the typed part. */
    public long metaBytes() {
        return metaBytes;
    }

    /** Buffers beside it. */
    public long buffers() {
        return buffers;
    }

    /** Values around a value. */
    public int depth() {
        return depth;
    }

    /** Values in the typed part. */
    public long values() {
        return values;
    }
}
