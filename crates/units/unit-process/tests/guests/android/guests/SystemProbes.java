package guests;

import static guests.Probes.add;

import android.content.ContentValues;
import android.content.Intent;
import android.database.MatrixCursor;
import android.graphics.Rect;
import android.net.Uri;
import android.os.BadParcelableException;
import android.os.BaseBundle;
import android.os.Build;
import android.os.Bundle;
import android.os.Handler;
import android.os.HandlerThread;
import android.os.Looper;
import android.os.Message;
import android.os.Parcel;
import android.os.ParcelUuid;
import android.os.Parcelable;
import android.os.PatternMatcher;
import android.os.PersistableBundle;
import android.os.Process;
import android.os.SystemClock;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Bundles, parcels, messages between threads, and what the system says of itself. */
final class SystemProbes {
    private SystemProbes() {}

    static void addAll() {
        values();
        parcels();
        messages();
        system();
    }

    private static void values() {
        add(ContentValues.class, "2 7", () -> {
            ContentValues values = new ContentValues();
            values.put("name", "x");
            values.put("count", 7);
            return values.size() + " " + values.getAsInteger("count");
        });
        add(Intent.class, "look text/plain 2", () -> {
            Intent intent = new Intent("look").setType("text/plain").putExtra("count", 2);
            return intent.getAction() + " " + intent.getType() + " " + intent.getIntExtra("count", 0);
        });
        add(MatrixCursor.class, "1 x", () -> {
            MatrixCursor cursor = new MatrixCursor(new String[] {"number", "name"});
            cursor.addRow(new Object[] {1, "x"});
            cursor.moveToFirst();
            return cursor.getInt(0) + " " + cursor.getString(cursor.getColumnIndex("name"));
        });
        add(Uri.class, "host /a/b value", () -> {
            Uri uri = Uri.parse("http://host/a/b?key=value");
            return uri.getHost() + " " + uri.getPath() + " " + uri.getQueryParameter("key");
        });
        add(PatternMatcher.class, true, () ->
                new PatternMatcher("/a/.*", PatternMatcher.PATTERN_SIMPLE_GLOB).match("/a/b"));
    }

    private static Bundle bundle() {
        Bundle bundle = new Bundle();
        bundle.putString("name", "x");
        bundle.putIntArray("numbers", new int[] {1, 2});
        bundle.putParcelable("rect", new Rect(1, 2, 3, 4));
        return bundle;
    }

    private static Bundle again(Bundle bundle) {
        Parcel parcel = Parcel.obtain();
        parcel.writeBundle(bundle);
        byte[] bytes = parcel.marshall();
        parcel.recycle();
        Parcel other = Parcel.obtain();
        other.unmarshall(bytes, 0, bytes.length);
        other.setDataPosition(0);
        return other.readBundle(SystemProbes.class.getClassLoader());
    }

    @SuppressWarnings("deprecation")
    private static void parcels() {
        add(Bundle.class, "x 2 Rect(1, 2 - 3, 4)", () -> {
            Bundle bundle = again(bundle());
            return bundle.getString("name") + " " + bundle.getIntArray("numbers")[1] + " " + bundle.get("rect");
        });
        add(BaseBundle.class, "3 true", () -> {
            BaseBundle bundle = bundle();
            return bundle.size() + " " + bundle.containsKey("name");
        });
        add(PersistableBundle.class, 2.5, () -> {
            PersistableBundle bundle = new PersistableBundle();
            bundle.putDouble("half", 2.5);
            return bundle.getDouble("half");
        });
        add(Parcel.class, "7 -1 2.5 true [1, 2] 0", () -> {
            Parcel parcel = Parcel.obtain();
            parcel.writeInt(7);
            parcel.writeLong(-1);
            parcel.writeDouble(2.5);
            parcel.writeBoolean(true);
            parcel.writeByteArray(new byte[] {1, 2});
            parcel.setDataPosition(0);
            String read = parcel.readInt() + " " + parcel.readLong() + " " + parcel.readDouble() + " "
                    + parcel.readBoolean() + " " + java.util.Arrays.toString(parcel.createByteArray());
            return read + " " + parcel.dataAvail();
        });
        add(Parcelable.class, "Rect(1, 2 - 3, 4)", () -> {
            Parcel parcel = Parcel.obtain();
            Parcelable rect = new Rect(1, 2, 3, 4);
            rect.writeToParcel(parcel, 0);
            parcel.setDataPosition(0);
            return Rect.CREATOR.createFromParcel(parcel);
        });
        add(ParcelUuid.class, "00000000-0000-0001-0000-000000000002", () -> new ParcelUuid(new UUID(1, 2)));
        add(BadParcelableException.class, "no class", () -> new BadParcelableException("no class").getMessage());
    }

    private static void messages() {
        add(Message.class, "3 4", () -> {
            Message message = Message.obtain();
            message.what = 3;
            message.arg1 = 4;
            Message copy = Message.obtain(message);
            return copy.what + " " + copy.arg1;
        });
        add(HandlerThread.class, "a thread", () -> {
            HandlerThread thread = new HandlerThread("a thread");
            thread.start();
            CompletableFuture<String> name = new CompletableFuture<>();
            new Handler(thread.getLooper()).post(() -> name.complete(Thread.currentThread().getName()));
            String found = name.get(10, TimeUnit.SECONDS);
            thread.quitSafely();
            return found;
        });
        add(Handler.class, "first later", () -> {
            HandlerThread thread = new HandlerThread("handles");
            thread.start();
            CompletableFuture<String> said = new CompletableFuture<>();
            StringBuilder words = new StringBuilder();
            Handler handler = new Handler(thread.getLooper(), message -> {
                words.append(message.obj);
                return true;
            });
            handler.sendMessage(handler.obtainMessage(1, "first"));
            handler.postDelayed(() -> said.complete(words + " later"), 5);
            String found = said.get(10, TimeUnit.SECONDS);
            thread.quit();
            return found;
        });
        add(Looper.class, "ran", () -> {
            StringBuilder said = new StringBuilder();
            Thread thread = new Thread(() -> {
                Looper.prepare();
                new Handler(Looper.myLooper()).post(() -> {
                    said.append("ran");
                    Looper.myLooper().quit();
                });
                Looper.loop();
            });
            thread.start();
            thread.join();
            return said;
        });
    }

    private static void system() {
        add(Build.class, "35 15 Libdroid true", () -> Build.VERSION.SDK_INT + " " + Build.VERSION.RELEASE + " "
                + Build.MODEL + " " + (Build.SUPPORTED_ABIS.length > 0));
        add(SystemClock.class, true, () -> {
            long before = SystemClock.elapsedRealtimeNanos();
            return SystemClock.uptimeMillis() > 0 && SystemClock.elapsedRealtimeNanos() >= before;
        });
        add(Process.class, "1000 true", () -> Process.myUid() + " " + (Process.myPid() > 0));
    }
}
