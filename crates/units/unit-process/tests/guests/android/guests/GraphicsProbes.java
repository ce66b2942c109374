package guests;

import static guests.Probes.add;

import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.graphics.BitmapShader;
import android.graphics.BlurMaskFilter;
import android.graphics.Canvas;
import android.graphics.Color;
import android.graphics.ColorFilter;
import android.graphics.ColorMatrix;
import android.graphics.ColorMatrixColorFilter;
import android.graphics.ColorSpace;
import android.graphics.CornerPathEffect;
import android.graphics.DashPathEffect;
import android.graphics.LightingColorFilter;
import android.graphics.LinearGradient;
import android.graphics.MaskFilter;
import android.graphics.Matrix;
import android.graphics.Paint;
import android.graphics.Path;
import android.graphics.PathEffect;
import android.graphics.PathMeasure;
import android.graphics.Point;
import android.graphics.PointF;
import android.graphics.PorterDuff;
import android.graphics.PorterDuffColorFilter;
import android.graphics.PorterDuffXfermode;
import android.graphics.RadialGradient;
import android.graphics.Rect;
import android.graphics.RectF;
import android.graphics.Region;
import android.graphics.Shader;
import android.graphics.SweepGradient;
import android.graphics.Xfermode;
import java.io.ByteArrayOutputStream;

/** Pictures, and what they are drawn with: the native half does the work. */
final class GraphicsProbes {
    private static final int RED = 0xFFFF0000;

    private GraphicsProbes() {}

    static void addAll() {
        shapes();
        bitmaps();
        paints();
        filters();
    }

    private static Bitmap blank() {
        return Bitmap.createBitmap(8, 8, Bitmap.Config.ARGB_8888);
    }

    /** The colour in the middle of a picture that is filled with this paint. */
    private static String drawn(Paint paint) {
        Bitmap bitmap = blank();
        new Canvas(bitmap).drawPaint(paint);
        return Integer.toHexString(bitmap.getPixel(4, 4));
    }

    private static Paint red() {
        Paint paint = new Paint();
        paint.setColor(RED);
        return paint;
    }

    private static Path square() {
        Path path = new Path();
        path.addRect(2, 2, 6, 6, Path.Direction.CW);
        return path;
    }

    private static void shapes() {
        add(Point.class, "Point(4, 2)", () -> {
            Point point = new Point(1, 2);
            point.offset(3, 0);
            return point;
        });
        add(PointF.class, 5.0f, () -> new PointF(3, 4).length());
        add(Rect.class, "Rect(2, 2 - 4, 4)", () -> {
            Rect rect = new Rect(0, 0, 4, 4);
            return rect.intersect(2, 2, 8, 8) ? rect : "none";
        });
        add(RectF.class, 6.0f, () -> new RectF(1, 2, 4, 4).width() * 2);
        add(Region.class, false, () -> {
            Region region = new Region(0, 0, 8, 8);
            region.op(new Rect(2, 2, 4, 4), Region.Op.DIFFERENCE);
            return region.contains(3, 3);
        });
        add(Matrix.class, "0.866 0.500", () -> {
            Matrix matrix = new Matrix();
            matrix.postRotate(30);
            float[] points = {1, 0};
            matrix.mapPoints(points);
            return String.format("%.3f %.3f", points[0], points[1]);
        });
        add(Path.class, "RectF(2.0, 2.0, 6.0, 6.0)", () -> {
            RectF bounds = new RectF();
            square().computeBounds(bounds, true);
            return bounds;
        });
        add(PathMeasure.class, 16.0f, () -> new PathMeasure(square(), true).getLength());
    }

    private static void bitmaps() {
        add(Bitmap.class, "ff112233 4", () -> {
            Bitmap bitmap = blank();
            bitmap.eraseColor(0xFF112233);
            Bitmap half = Bitmap.createScaledBitmap(bitmap, 4, 4, true);
            return Integer.toHexString(half.getPixel(1, 1)) + " " + half.getWidth();
        });
        add(BitmapFactory.class, "ff112233 null", () -> {
            Bitmap bitmap = blank();
            bitmap.setPixel(1, 1, 0xFF112233);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            bitmap.compress(Bitmap.CompressFormat.PNG, 100, out);
            Bitmap read = BitmapFactory.decodeByteArray(out.toByteArray(), 0, out.size());
            Object broken = BitmapFactory.decodeByteArray(new byte[10], 0, 10);
            return Integer.toHexString(read.getPixel(1, 1)) + " " + broken;
        });
        add(Canvas.class, "ffff0000 0", () -> {
            Bitmap bitmap = blank();
            Canvas canvas = new Canvas(bitmap);
            canvas.clipRect(0, 0, 6, 6);
            canvas.drawCircle(4, 4, 3, red());
            return Integer.toHexString(bitmap.getPixel(4, 4)) + " " + bitmap.getPixel(0, 0);
        });
        add(Color.class, "-65536 0.7152", () -> Color.parseColor("#ff0000") + " " + Color.luminance(0xFF00FF00));
        add(ColorSpace.class, "sRGB IEC61966-2.1", () -> ColorSpace.get(ColorSpace.Named.SRGB).getName());
        add(BitmapShader.class, "ff112233", () -> {
            Bitmap tile = Bitmap.createBitmap(1, 1, Bitmap.Config.ARGB_8888);
            tile.setPixel(0, 0, 0xFF112233);
            Paint paint = new Paint();
            paint.setShader(new BitmapShader(tile, Shader.TileMode.REPEAT, Shader.TileMode.REPEAT));
            return drawn(paint);
        });
    }

    private static String shaded(Shader shader) {
        Paint paint = new Paint();
        paint.setShader(shader);
        return drawn(paint);
    }

    private static void paints() {
        add(Paint.class, "ffff0000", () -> drawn(red()));
        add(Shader.class, true, () -> {
            Shader shader = new LinearGradient(0, 0, 8, 0, RED, RED, Shader.TileMode.CLAMP);
            shader.setLocalMatrix(new Matrix());
            return shader.getLocalMatrix(new Matrix()) || shaded(shader).equals("ffff0000");
        });
        add(LinearGradient.class, "ffff0000", () ->
                shaded(new LinearGradient(0, 0, 8, 0, RED, RED, Shader.TileMode.CLAMP)));
        add(RadialGradient.class, "ffff0000", () ->
                shaded(new RadialGradient(4, 4, 8, RED, RED, Shader.TileMode.CLAMP)));
        add(SweepGradient.class, "ffff0000", () -> shaded(new SweepGradient(4, 4, RED, RED)));
        add(PathEffect.class, "true", () -> red().setPathEffect(new CornerPathEffect(1)) instanceof PathEffect);
        add(CornerPathEffect.class, 0, () -> stroked(new CornerPathEffect(4)));
        add(DashPathEffect.class, 0, () -> stroked(new DashPathEffect(new float[] {1, 100}, 50)));
        add(MaskFilter.class, "true", () -> red().setMaskFilter(blur()) instanceof MaskFilter);
        add(BlurMaskFilter.class, true, () -> {
            Bitmap bitmap = blank();
            Paint paint = red();
            paint.setMaskFilter(blur());
            new Canvas(bitmap).drawRect(3, 3, 5, 5, paint);
            return bitmap.getPixel(2, 2) != 0;
        });
    }

    private static BlurMaskFilter blur() {
        return new BlurMaskFilter(2, BlurMaskFilter.Blur.NORMAL);
    }

    /** What a corner of a square gets of its outline: nothing, with an effect that leaves it out. */
    private static int stroked(PathEffect effect) {
        Bitmap bitmap = blank();
        Paint paint = red();
        paint.setStyle(Paint.Style.STROKE);
        paint.setPathEffect(effect);
        new Canvas(bitmap).drawPath(square(), paint);
        return bitmap.getPixel(2, 2) == RED ? 1 : 0;
    }

    private static String filtered(ColorFilter filter) {
        Paint paint = red();
        paint.setColorFilter(filter);
        return drawn(paint);
    }

    private static void filters() {
        add(ColorMatrix.class, "0.0 1.0", () -> {
            ColorMatrix matrix = new ColorMatrix();
            float before = matrix.getArray()[1];
            return before + " " + matrix.getArray()[0];
        });
        add(ColorMatrixColorFilter.class, "ff363636", () -> {
            ColorMatrix grey = new ColorMatrix();
            grey.setSaturation(0);
            return filtered(new ColorMatrixColorFilter(grey));
        });
        add(ColorFilter.class, "ff000000", () -> filtered(new LightingColorFilter(0, 0)));
        add(LightingColorFilter.class, "ff0000ff", () -> filtered(new LightingColorFilter(0, 0xFF)));
        add(PorterDuffColorFilter.class, "ff00ff00", () ->
                filtered(new PorterDuffColorFilter(0xFF00FF00, PorterDuff.Mode.SRC)));
        add(PorterDuff.class, "[CLEAR, SRC]", () ->
                java.util.List.of(PorterDuff.Mode.values()).subList(0, 2));
        add(Xfermode.class, "true", () ->
                red().setXfermode(new PorterDuffXfermode(PorterDuff.Mode.SRC)) instanceof Xfermode);
        add(PorterDuffXfermode.class, "0", () -> {
            Bitmap bitmap = blank();
            bitmap.eraseColor(RED);
            Paint paint = new Paint();
            paint.setXfermode(new PorterDuffXfermode(PorterDuff.Mode.CLEAR));
            new Canvas(bitmap).drawRect(0, 0, 8, 8, paint);
            return Integer.toHexString(bitmap.getPixel(4, 4));
        });
    }
}
