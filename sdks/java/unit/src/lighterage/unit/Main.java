package lighterage.unit;

import java.io.IOException;
import lighterage.frame.Frame;
import lighterage.frame.FrameException;

/**
 * A unit: started by its jail for one function, with its socket as descriptor 0.
 *
 * <p>`Main CONTRACT ENTRY CALLS`: it rehearses a call with methods of its own, loads the function, says that it is
 * ready, and does so many pieces of work. If the function cannot be loaded, it says why and ends.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws IOException, FrameException {
        Link link = Link.inherited();
        Work work;
        try {
            Rehearsal.call(arguments[0].equals("call"));
            work = new Work(arguments[0].equals("call"), arguments[1]);
        } catch (Throwable thrown) {
            boolean isInitializer = thrown instanceof ExceptionInInitializerError && thrown.getCause() != null;
            Throwable cause = isInitializer ? thrown.getCause() : thrown;
            Thrown.print(thrown);
            System.err.flush();
            link.send(Work.failure(0, Thrown.kind(cause), Work.words(cause, true)));
            Runtime.getRuntime().halt(1);
            return;
        }
        link.send(new Frame(Frame.REPLY, 0, null));
        work.serve(link, Integer.parseInt(arguments[2]));
        link.waitForEnd();
        Runtime.getRuntime().halt(0);
    }
}
