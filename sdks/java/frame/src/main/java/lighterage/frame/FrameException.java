package lighterage.frame;

/** Bytes that are no frame. {@link #word} is the contract's word for what is wrong. */
public final class FrameException extends Exception {
    private static final long serialVersionUID = 1;

    /** As `contracts/frame.md` has it, for instance `truncated`. */
    public final String word;

    public FrameException(String word) {
        this(word, word);
    }

    public FrameException(String word, String message) {
        super(message, null, false, false);
        this.word = word;
    }
}
