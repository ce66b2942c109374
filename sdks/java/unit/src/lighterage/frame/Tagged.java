package lighterage.frame;

/** A value, and the name of what it stands for. */
public record Tagged(String name, Object value) {}
