package workloads;

import java.awt.image.BufferedImage;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import javax.imageio.ImageIO;
import org.json.JSONArray;
import org.json.JSONObject;

/** What the four workloads say, against what others have found out. Each line of the tables is a claim. */
public final class WorkloadsTest {
    private static final String START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1";

    private WorkloadsTest() {}

    public static void main(String[] arguments) throws Exception {
        chess();
        linpack();
        viruses();
        faces();
        System.out.println("workloads: ok");
    }

    /** The numbers of games are those of the chess programming wiki; the mates are forced. */
    private static void chess() {
        is(197_281L, ChessGame.perft(START, 4));
        is(97_862L, ChessGame.perft("r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq -", 3));
        is(43_238L, ChessGame.perft("8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - -", 4));
        is(9_467L, ChessGame.perft("r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1", 3));
        is(62_379L, ChessGame.perft("rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8", 3));
        is("h5f7", ChessGame.move("r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4", 3).move);
        ChessGame.Answer mate = ChessGame.move("kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1", 4);
        is("a1a6", mate.move);
        is(Search.MATE - 3, mate.score);
        is("", ChessGame.move("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", 3).move);
        is(0, ChessGame.move("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", 3).score);
        refused(() -> ChessGame.move("8/8/8/8/8/8/8/8 w - - 0 1", 3));
        refused(() -> ChessGame.move("nonsense", 3));
        refused(() -> ChessGame.move(START, 99));
    }

    private static void linpack() {
        for (int equations : new int[] {1, 2, 100, 300}) {
            double residual = Linpack.run(equations, 3).residual;
            check(residual < 10, equations + " equations: " + residual);
        }
        double[] solved = {5, 11};
        Linpack.solve(new double[][] {{1, 2}, {3, 4}}, solved);
        check(Math.abs(solved[0] - 1) < 1e-12 && Math.abs(solved[1] - 2) < 1e-12, Arrays.toString(solved));
        refused(() -> Linpack.run(0, 1));
    }

    /** Every planted signature is found at its place, and strings within each other all are. */
    private static void viruses() throws Exception {
        JSONObject found = new JSONObject(VirusScan.small());
        JSONArray places = found.getJSONArray("found");
        is(7, places.length());
        for (int at = 0; at < 7; at++) {
            is(VirusScan.place(256 << 10, 7, at), places.getJSONObject(at).getInt("at"));
            is(at == 0 ? "EICAR-Test-File" : "Generated-" + at * 250, places.getJSONObject(at).getString("name"));
        }
        String eicar = java.util.Base64.getEncoder().encodeToString(VirusScan.eicar());
        is(1, new JSONObject(VirusScan.base64(eicar)).getJSONArray("found").length());
        List<byte[]> patterns = new ArrayList<>();
        for (String pattern : new String[] {"he", "she", "his", "hers", "h"}) {
            patterns.add(pattern.getBytes("US-ASCII"));
        }
        StringBuilder all = new StringBuilder();
        byte[] text = "ushers".getBytes("US-ASCII");
        new AhoCorasick(patterns).scan(text, (pattern, end) -> all.append(pattern).append('<').append(end).append(' '));
        is("4<3 1<4 0<4 3<6 ", all.toString());
        refused(() -> VirusScan.scan(new byte[1], 1_000_000));
    }

    /** One face in the portrait, where it is; at any size, and none in noise. */
    private static void faces() throws IOException {
        BufferedImage picture = ImageIO.read(new ByteArrayInputStream(FaceDetect.resource("/astronaut.jpg")));
        int width = picture.getWidth();
        int[] gray = new int[width * picture.getHeight()];
        for (int at = 0; at < gray.length; at++) {
            int pixel = picture.getRGB(at % width, at / width);
            gray[at] = FaceDetect.gray(pixel >> 16 & 255, pixel >> 8 & 255, pixel & 255);
        }
        Detector detector = new Detector(new Cascade(FaceDetect.text("/lbpcascade_frontalface.xml")));
        List<int[]> faces = detector.find(gray, width, picture.getHeight());
        is(1, faces.size());
        int[] face = faces.get(0);
        int middleX = face[0] + face[2] / 2;
        int middleY = face[1] + face[3] / 2;
        check(Math.abs(middleX - 112) < 14 && Math.abs(middleY - 58) < 18, Arrays.toString(face));
        int[] noise = new int[100 * 100];
        Random random = new Random(1);
        for (int at = 0; at < noise.length; at++) {
            noise[at] = random.nextInt(256);
        }
        is(0, detector.find(noise, 100, 100).size());
        is(0, detector.find(new int[10 * 10], 10, 10).size());
        System.out.println("the face is at " + Arrays.toString(face));
    }

    private static void refused(Runnable call) {
        try {
            call.run();
        } catch (IllegalArgumentException said) {
            return;
        }
        throw new AssertionError("it is not refused");
    }

    private static void is(Object wanted, Object found) {
        check(wanted.equals(found), found + ", and not " + wanted);
    }

    private static void check(boolean holds, String words) {
        if (!holds) {
            throw new AssertionError(words);
        }
    }
}
