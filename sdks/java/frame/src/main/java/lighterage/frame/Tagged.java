package lighterage.frame;

/** A value, and the name of what it stands for. */
public final class Tagged {
    private final String name;
    private final Object value;

    /** `value` stands for what `name` says. */
    public Tagged(String name, Object value) {
        this.name = name;
        this.value = value;
    }

    /** What it stands for. */
    public String name() {
        return name;
    }

    /** The plain value. */
    public Object value() {
        return value;
    }
}
