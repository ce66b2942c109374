package lighterage;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/** Each error's code is that of `contracts/errors.toml`, under the same name. */
public final class CodesTest {
    /** By its code and its name; Java calls one of them an exception. */
    public void testEveryCodeIsInTheContract() throws IOException {
        Path file = Paths.get(System.getProperty("lighterage.root"), "contracts/errors.toml");
        String contract = new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
        LighterageException[] errors = {
            new NodeUnreachable("x"),
            new NodeUnproven("x"),
            new NoNode("x"),
            new ReplyBroken("x"),
            new DoesNotTravel("x"),
            new TimeIsUp("x"),
            new RemoteException("x", null),
            new CallTooLarge("x"),
            new OnMainThread("x"),
            new ConfigInvalid("x"),
        };
        for (LighterageException error : errors) {
            String name = error.getClass().getSimpleName().replace("Exception", "Error");
            assert contract.contains("[" + error.code() + "]\nname = \"" + name + "\"\n") : error;
            assert error.toString().endsWith("x [" + error.code() + "]") : error;
        }
    }
}
