package lighterage.droid;

import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.graphics.Canvas;
import android.graphics.Matrix;
import android.graphics.Paint;
import android.graphics.PointF;
import android.graphics.Rect;
import android.net.Uri;
import android.os.Build;
import android.os.Bundle;
import android.os.Parcel;
import android.os.SystemClock;
import android.text.TextUtils;
import android.util.Base64;
import android.util.Log;
import android.util.LruCache;
import android.util.SparseArray;
import java.io.ByteArrayOutputStream;
import org.json.JSONObject;

/** Uses what functions use of Android: the classes that it loads are in the archive from which units start. */
final class Rehearsal {
    private Rehearsal() {}

    public static void main(String[] arguments) throws Exception {
        Main.load();
        Bitmap bitmap = Bitmap.createBitmap(8, 8, Bitmap.Config.ARGB_8888);
        new Canvas(bitmap).drawCircle(4, 4, 3, new Paint());
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        bitmap.compress(Bitmap.CompressFormat.PNG, 100, out);
        BitmapFactory.decodeByteArray(out.toByteArray(), 0, out.size()).getPixel(4, 4);
        Bitmap.createScaledBitmap(bitmap, 4, 4, true);
        Matrix matrix = new Matrix();
        matrix.postRotate(30);
        matrix.mapPoints(new float[] {new PointF(1, 2).x, new Rect(1, 2, 3, 4).width()});
        Bundle bundle = new Bundle();
        bundle.putInt(Build.MODEL, 1);
        Parcel parcel = Parcel.obtain();
        bundle.writeToParcel(parcel, 0);
        parcel.recycle();
        new SparseArray<String>().put(1, "");
        new LruCache<String, String>(2).put("", "");
        Log.isLoggable(TextUtils.join(",", new String[] {Base64.encodeToString(new byte[1], 0)}), Log.INFO);
        new JSONObject("{\"a\": [1, 2.5]}").put("b", Uri.parse("http://a/b?c=d").getQueryParameter("c"));
        SystemClock.elapsedRealtime();
        rehearseUnit(arguments);
    }

    private static void rehearseUnit(String[] arguments) throws Exception {
        var rehearse = Class.forName("lighterage.unit.Rehearsal").getDeclaredMethod("main", String[].class);
        rehearse.setAccessible(true);
        rehearse.invoke(null, (Object) arguments);
    }
}
