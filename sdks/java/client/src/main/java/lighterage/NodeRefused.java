package lighterage;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/** The node refused the call or could not finish it; the code is the node's own. */
public final class NodeRefused extends LighterageException {
    private static final long serialVersionUID = 1;
    /** The node has no room now, or is going: another may have. */
    private static final Set<String> BUSY =
            new HashSet<>(Arrays.asList("L3007", "L3008", "L3009", "L3010", "L3013", "L4010", "L5005", "L5008"));

    /** The status of HTTP. */
    public final int status;
    /** What to do about it, in the node's words; may be empty. */
    public final String hint;

    /** What a node said. */
    public NodeRefused(int status, String code, String detail, String hint) {
        super(code, hint.isEmpty() ? detail : detail + " (hint: " + hint + ")");
        this.status = status;
        this.hint = hint;
    }

    /** Whether the node may do it later, and another one now. */
    public boolean isBusy() {
        return BUSY.contains(code());
    }
}
