package workloads;

import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.graphics.Color;
import android.graphics.Rect;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Finds faces that look at the camera, in a picture as `BitmapFactory` reads it. */
public final class FaceDetect {
    private static final String CASCADE = "/lbpcascade_frontalface.xml";
    private static final String PICTURE = "/astronaut.jpg";
    private static final int PIXELS_MAX = 16 << 20;
    /** Times the picture's own width and height. */
    private static final int SMALL = 1;
    private static final int MEDIUM = 2;
    private static final int LARGE = 4;

    private FaceDetect() {}

    /** The texts of the faces in NASA's portrait of Eileen Collins, as `Rect.flattenToString` writes them. */
    public static List<String> small() throws IOException {
        return texts(faces(portrait(SMALL)));
    }

    public static List<String> medium() throws IOException {
        return texts(faces(portrait(MEDIUM)));
    }

    public static List<String> large() throws IOException {
        return texts(faces(portrait(LARGE)));
    }

    /** Those of a picture's bytes: JPEG, PNG or WebP. */
    public static List<String> find(byte[] picture) throws IOException {
        Bitmap bitmap = BitmapFactory.decodeByteArray(picture, 0, picture.length);
        if (bitmap == null) {
            throw new IllegalArgumentException("the bytes are no picture");
        }
        return texts(faces(bitmap));
    }

    /** The faces, the clearest first. */
    static List<Rect> faces(Bitmap bitmap) throws IOException {
        int width = bitmap.getWidth();
        int height = bitmap.getHeight();
        if ((long) width * height > PIXELS_MAX) {
            String size = width + " x " + height;
            throw new IllegalArgumentException("a picture of " + size + ", the limit is 16 million pixels");
        }
        int[] pixels = new int[width * height];
        bitmap.getPixels(pixels, 0, width, 0, 0, width, height);
        for (int at = 0; at < pixels.length; at++) {
            pixels[at] = gray(Color.red(pixels[at]), Color.green(pixels[at]), Color.blue(pixels[at]));
        }
        List<Rect> faces = new ArrayList<>();
        for (int[] face : new Detector(new Cascade(text(CASCADE))).find(pixels, width, height)) {
            faces.add(new Rect(face[0], face[1], face[0] + face[2], face[1] + face[3]));
        }
        return faces;
    }

    private static Bitmap portrait(int times) throws IOException {
        byte[] picture = resource(PICTURE);
        Bitmap bitmap = BitmapFactory.decodeByteArray(picture, 0, picture.length);
        int width = bitmap.getWidth() * times;
        return times == 1 ? bitmap : Bitmap.createScaledBitmap(bitmap, width, bitmap.getHeight() * times, true);
    }

    /** The brightness that people see, as television has it (BT.601). */
    static int gray(int red, int green, int blue) {
        return (299 * red + 587 * green + 114 * blue + 500) / 1_000;
    }

    private static List<String> texts(List<Rect> faces) {
        List<String> texts = new ArrayList<>();
        for (Rect face : faces) {
            texts.add(face.flattenToString());
        }
        return texts;
    }

    static String text(String name) throws IOException {
        return new String(resource(name), StandardCharsets.UTF_8);
    }

    static byte[] resource(String name) throws IOException {
        try (InputStream in = FaceDetect.class.getResourceAsStream(name)) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            byte[] some = new byte[8_192];
            for (int got = in.read(some); got > 0; got = in.read(some)) {
                out.write(some, 0, got);
            }
            return out.toByteArray();
        }
    }
}
