package lighterage.convert;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Converts dex files to a jar, as a deployment does, and prints the milliseconds: `RoundTrip [each] JAR DEX…`. */
final class RoundTrip {
    private RoundTrip() {}

    public static void main(String[] arguments) throws IOException {
        boolean isEach = arguments[0].equals("each");
        int jar = isEach ? 1 : 0;
        List<byte[]> dex = new ArrayList<>();
        for (int index = jar + 1; index < arguments.length; index++) {
            dex.add(Files.readAllBytes(Path.of(arguments[index])));
        }
        if (isEach) {
            for (byte[] one : dex) {
                convert(arguments[jar], List.of(one));
            }
        } else {
            convert(arguments[jar], dex);
        }
    }

    private static void convert(String jar, List<byte[]> dex) throws IOException {
        long began = System.nanoTime();
        byte[] made = Converter.jar(dex, Map.of());
        System.out.println((System.nanoTime() - began) / 1_000_000.0);
        Files.write(Path.of(jar), made);
    }
}
