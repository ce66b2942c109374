package lighterage;

/** What the method threw on the node, where its class is not known here. */
public final class RemoteException extends LighterageException {
    private static final long serialVersionUID = 1;

    /** The name of the class that was thrown. */
    public final String name;

    /** `message` is the exception's own; null where it had none. */
    public RemoteException(String name, String message) {
        super("L8006", message == null ? name : name + ": " + message);
        this.name = name;
    }
}
