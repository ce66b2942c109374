package bench;

import android.graphics.Bitmap;
import android.graphics.Matrix;

/** What is called: nothing but the way there and back, and a picture on Libdroid. */
public final class Work {
    private Work() {}

    static int plain(int number) {
        return number + 1;
    }

    static int picture(int size) {
        Bitmap bitmap = Bitmap.createBitmap(size, size, Bitmap.Config.ARGB_8888);
        bitmap.eraseColor(0xFF112233);
        Matrix matrix = new Matrix();
        matrix.postRotate(90);
        return Bitmap.createBitmap(bitmap, 0, 0, size, size, matrix, true).getPixel(0, 0);
    }
}
