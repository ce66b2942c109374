package guests;

import static guests.Probes.add;

import android.text.Editable;
import android.text.GetChars;
import android.text.Spannable;
import android.text.SpannableString;
import android.text.SpannableStringBuilder;
import android.text.Spanned;
import android.text.TextUtils;
import android.util.AndroidException;
import android.util.AndroidRuntimeException;
import android.util.ArrayMap;
import android.util.ArraySet;
import android.util.Base64;
import android.util.Base64InputStream;
import android.util.Base64OutputStream;
import android.util.JsonReader;
import android.util.JsonWriter;
import android.util.Log;
import android.util.LongSparseArray;
import android.util.LruCache;
import android.util.MalformedJsonException;
import android.util.MutableInt;
import android.util.Pair;
import android.util.Patterns;
import android.util.Range;
import android.util.Rational;
import android.util.Size;
import android.util.SizeF;
import android.util.SparseArray;
import android.util.SparseBooleanArray;
import android.util.SparseIntArray;
import android.util.SparseLongArray;
import android.util.StringBuilderPrinter;
import android.util.Xml;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.StringReader;
import java.io.StringWriter;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;
import org.json.JSONStringer;
import org.json.JSONTokener;
import org.xmlpull.v1.XmlPullParser;
import org.xmlpull.v1.XmlPullParserException;
import org.xmlpull.v1.XmlSerializer;

/** Texts, collections, JSON and XML. */
@SuppressWarnings("deprecation")
final class UtilProbes {
    private UtilProbes() {}

    static void addAll() {
        texts();
        collections();
        numbers();
        bytes();
        json();
        xml();
    }

    private static void texts() {
        add(TextUtils.class, "a,b true", () ->
                TextUtils.join(",", new String[] {"a", "b"}) + " " + TextUtils.isEmpty(""));
        add(SpannableString.class, "1", () -> {
            SpannableString text = new SpannableString("abc");
            text.setSpan("mark", 0, 2, Spanned.SPAN_INCLUSIVE_EXCLUSIVE);
            return text.getSpans(0, 3, String.class).length;
        });
        add(Spannable.class, 0, () -> {
            Spannable text = new SpannableString("abc");
            Object mark = "mark";
            text.setSpan(mark, 0, 2, 0);
            text.removeSpan(mark);
            return text.getSpans(0, 3, String.class).length;
        });
        add(Spanned.class, "0 2", () -> {
            SpannableStringBuilder text = new SpannableStringBuilder("abc");
            text.setSpan("mark", 0, 2, Spanned.SPAN_INCLUSIVE_EXCLUSIVE);
            Spanned spanned = text;
            return spanned.getSpanStart("mark") + " " + spanned.getSpanEnd("mark");
        });
        add(SpannableStringBuilder.class, "abXc", () -> new SpannableStringBuilder("abc").insert(2, "X"));
        add(Editable.class, "ac", () -> ((Editable) new SpannableStringBuilder("abc")).delete(1, 2));
        add(GetChars.class, "bc", () -> {
            char[] letters = new char[2];
            ((GetChars) new SpannableStringBuilder("abc")).getChars(1, 3, letters, 0);
            return new String(letters);
        });
        add(Patterns.class, true, () -> Patterns.EMAIL_ADDRESS.matcher("a@example.org").matches());
        add(Log.class, "true true", () ->
                (Log.i("probe", "in the log") > 0) + " " + Log.getStackTraceString(new Exception("x")).contains("at "));
        add(StringBuilderPrinter.class, "line\n", () -> {
            StringBuilder text = new StringBuilder();
            new StringBuilderPrinter(text).println("line");
            return text;
        });
        add(AndroidException.class, "x", () -> new AndroidException("x").getMessage());
        add(AndroidRuntimeException.class, "x", () -> new AndroidRuntimeException("x").getMessage());
    }

    private static void collections() {
        add(ArrayMap.class, "{a=1, b=2}", () -> {
            ArrayMap<String, Integer> map = new ArrayMap<>();
            map.put("b", 2);
            map.put("a", 1);
            return map;
        });
        add(ArraySet.class, 1, () -> {
            ArraySet<String> set = new ArraySet<>();
            set.add("a");
            set.add("a");
            return set.size();
        });
        add(SparseArray.class, "c null", () -> {
            SparseArray<String> array = new SparseArray<>();
            array.put(300, "c");
            array.put(3, "a");
            array.remove(3);
            return array.get(300) + " " + array.get(3);
        });
        add(SparseBooleanArray.class, true, () -> {
            SparseBooleanArray array = new SparseBooleanArray();
            array.put(3, true);
            return array.get(3);
        });
        add(SparseIntArray.class, "7 3", () -> {
            SparseIntArray array = new SparseIntArray();
            array.put(3, 7);
            return array.get(3) + " " + array.keyAt(0);
        });
        add(SparseLongArray.class, 7L, () -> {
            SparseLongArray array = new SparseLongArray();
            array.put(3, 7L);
            return array.get(3);
        });
        add(LongSparseArray.class, "x", () -> {
            LongSparseArray<String> array = new LongSparseArray<>();
            array.put(1L << 40, "x");
            return array.get(1L << 40);
        });
        add(LruCache.class, "null b", () -> {
            LruCache<String, String> cache = new LruCache<>(1);
            cache.put("a", "a");
            cache.put("b", "b");
            return cache.get("a") + " " + cache.get("b");
        });
        add(Pair.class, true, () -> Pair.create(1, "a").equals(new Pair<>(1, "a")));
    }

    private static void numbers() {
        add(Range.class, "[2, 3] 3", () -> Range.create(1, 3).intersect(2, 5) + " " + Range.create(1, 3).clamp(9));
        add(Rational.class, "1/2", () -> new Rational(2, 4));
        add(Size.class, "3x4", () -> Size.parseSize("3x4"));
        add(SizeF.class, "1.5x2.0", () -> new SizeF(1.5f, 2));
        add(MutableInt.class, 3, () -> {
            MutableInt number = new MutableInt(2);
            number.value++;
            return number.value;
        });
    }

    private static void bytes() {
        add(Base64.class, "-_8= hi", () -> Base64.encodeToString(new byte[] {(byte) 0xFB, (byte) 0xFF}, Base64.URL_SAFE)
                .trim() + " " + new String(Base64.decode("aGk=", Base64.DEFAULT)));
        add(Base64InputStream.class, "hi", () ->
                new String(new Base64InputStream(new ByteArrayInputStream("aGk=".getBytes()), 0).readAllBytes()));
        add(Base64OutputStream.class, "aGk=", () -> {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try (Base64OutputStream out = new Base64OutputStream(bytes, Base64.NO_WRAP)) {
                out.write("hi".getBytes());
            }
            return bytes;
        });
    }

    private static void json() {
        add(JSONObject.class, "{\"a\":1,\"b\":[true]}", () ->
                new JSONObject("{\"a\": 1}").put("b", new JSONArray().put(true)));
        add(JSONArray.class, "2 2.5", () -> {
            JSONArray array = new JSONArray("[1, 2.5]");
            return array.length() + " " + array.getDouble(1);
        });
        add(JSONStringer.class, "{\"a\":[1]}", () ->
                new JSONStringer().object().key("a").array().value(1).endArray().endObject());
        add(JSONTokener.class, "[1]", () -> new JSONTokener("[1] rest").nextValue());
        add(JSONException.class, true, () -> {
            try {
                return new JSONObject("{").toString();
            } catch (Exception wrong) {
                return wrong instanceof JSONException && wrong.getMessage().contains("End of input");
            }
        });
        add(JsonReader.class, "a 1", () -> {
            JsonReader reader = new JsonReader(new StringReader("{\"a\": 1}"));
            reader.beginObject();
            return reader.nextName() + " " + reader.nextInt();
        });
        add(JsonWriter.class, "{\"a\":[1]}", () -> {
            StringWriter text = new StringWriter();
            new JsonWriter(text).beginObject().name("a").beginArray().value(1).endArray().endObject().close();
            return text;
        });
        add(MalformedJsonException.class, true, () -> {
            try {
                return new JsonReader(new StringReader("nonsense")).nextString();
            } catch (Exception wrong) {
                return wrong instanceof MalformedJsonException;
            }
        });
    }

    private static void xml() {
        add(Xml.class, "a b", () -> {
            XmlPullParser parser = Xml.newPullParser();
            parser.setInput(new StringReader("<a b='c'/>"));
            parser.next();
            return parser.getName() + " " + parser.getAttributeName(0);
        });
        add(XmlPullParser.class, "text", () -> {
            XmlPullParser parser = Xml.newPullParser();
            parser.setInput(new StringReader("<a>text</a>"));
            parser.nextTag();
            return parser.nextText();
        });
        add(XmlPullParserException.class, true, () -> {
            XmlPullParser parser = Xml.newPullParser();
            parser.setInput(new StringReader("<a></b>"));
            try {
                parser.nextTag();
                parser.nextTag();
                return false;
            } catch (Exception wrong) {
                return wrong instanceof XmlPullParserException where && where.getLineNumber() == 1;
            }
        });
        add(XmlSerializer.class, "<a b=\"c\" />", () -> {
            StringWriter text = new StringWriter();
            XmlSerializer out = Xml.newSerializer();
            out.setOutput(text);
            out.startTag(null, "a").attribute(null, "b", "c").endTag(null, "a");
            out.endDocument();
            return text.toString().trim();
        });
    }
}
