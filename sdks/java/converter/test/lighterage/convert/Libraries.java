package lighterage.convert;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.google.common.base.Splitter;
import com.google.common.cache.CacheBuilder;
import com.google.common.collect.HashBasedTable;
import com.google.common.collect.ImmutableSortedMap;
import com.google.common.collect.Table;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.reflect.TypeToken;
import com.google.zxing.BarcodeFormat;
import com.google.zxing.qrcode.QRCodeWriter;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import okio.Buffer;
import okio.ByteString;
import org.apache.commons.codec.digest.DigestUtils;
import org.apache.commons.codec.language.DoubleMetaphone;
import org.apache.commons.csv.CSVFormat;
import org.apache.commons.csv.CSVRecord;
import org.apache.commons.lang3.StringUtils;
import org.apache.commons.lang3.time.DurationFormatUtils;
import org.apache.commons.lang3.tuple.Pair;
import org.joda.time.DateTime;
import org.joda.time.DateTimeZone;
import org.joda.time.Days;
import org.joda.time.format.ISODateTimeFormat;
import org.jsoup.Jsoup;
import org.yaml.snakeyaml.Yaml;

/** Uses ten libraries, each for what it is for, and prints what they say: a line for each. */
final class Libraries {
    private Libraries() {}

    /** Throws whatever a library throws. */
    interface Use {
        Object run() throws Exception;
    }

    public static void main(String[] arguments) {
        say("gson", Libraries::gson);
        say("snakeyaml", Libraries::yaml);
        say("commons-lang3", Libraries::lang);
        say("commons-codec", Libraries::codec);
        say("commons-csv", Libraries::csv);
        say("jsoup", Libraries::html);
        say("joda-time", Libraries::time);
        say("zxing", Libraries::codes);
        say("guava", Libraries::collections);
        say("okio", Libraries::bytes);
        say("jackson", Libraries::tokens);
    }

    private static void say(String name, Use use) {
        try {
            System.out.println(name + ": " + use.run());
        } catch (Throwable thrown) {
            System.out.println(name + " failed: " + thrown);
        }
    }

    /** A value with what a library finds by reflection. */
    static final class Reading {
        String name = "kitchen";
        double[] values = {1, 2.5};
        Map<String, List<Integer>> more = new TreeMap<>(Map.of("a", List.of(1, 2)));
    }

    private static Object gson() {
        Gson gson = new GsonBuilder().setPrettyPrinting().create();
        String text = gson.toJson(new Reading());
        Reading read = gson.fromJson(text, Reading.class);
        Map<String, List<Integer>> map = gson.fromJson("{\"b\": [3]}", new TypeToken<Map<String, List<Integer>>>() {}.getType());
        return text.replaceAll("\\s", "") + read.values[1] + map;
    }

    private static Object yaml() {
        Object read = new Yaml().load("name: kitchen\nvalues: [1, 2.5, 0x1F]\nmore: &x {a: b}\nagain: *x\n");
        return new Yaml().dump(read).replace("\n", "|");
    }

    private static Object lang() {
        return StringUtils.capitalize(StringUtils.reverse("olleh")) + StringUtils.getLevenshteinDistance("kitten", "sitting")
                + DurationFormatUtils.formatDuration(3_661_000, "H:mm:ss") + Pair.of(1, "two");
    }

    private static Object codec() {
        return DigestUtils.sha256Hex("abc") + new DoubleMetaphone().doubleMetaphone("Schmidt");
    }

    private static Object csv() throws Exception {
        StringBuilder said = new StringBuilder();
        CSVFormat format = CSVFormat.DEFAULT.builder().setHeader().setSkipHeaderRecord(true).build();
        for (CSVRecord record : format.parse(new java.io.StringReader("a,b\n1,\"two, \"\"2\"\"\"\n3,\n"))) {
            said.append(record.get("a")).append('=').append(record.get("b")).append(';');
        }
        return said;
    }

    private static Object html() {
        var page = Jsoup.parse("<p class=x>one<b>two</b><p>three", "http://example.org/");
        return page.select("p.x > b").text() + page.select("p").size() + Jsoup.clean("<script>x</script><i>ok</i>", org.jsoup.safety.Safelist.basic());
    }

    private static Object time() {
        DateTime begin = ISODateTimeFormat.dateTimeParser().withZone(DateTimeZone.UTC).parseDateTime("2026-02-27T10:00:00Z");
        DateTime end = begin.plusMonths(1).withDayOfMonth(1);
        return end + " " + Days.daysBetween(begin, end).getDays() + " " + end.withZone(DateTimeZone.forOffsetHours(2));
    }

    private static Object codes() throws Exception {
        return DigestUtils.sha256Hex(new QRCodeWriter().encode("lighterage", BarcodeFormat.QR_CODE, 64, 64).toString());
    }

    private static Object collections() throws Exception {
        Table<String, Integer, String> table = HashBasedTable.create();
        table.put("a", 1, "x");
        var cache = CacheBuilder.newBuilder().maximumSize(2).<String, Integer>build();
        return ImmutableSortedMap.of("b", 2, "a", 1) + Splitter.on(',').trimResults().splitToList("x, y").toString()
                + table.row("a") + cache.get("k", () -> 7);
    }

    private static Object bytes() throws Exception {
        Buffer buffer = new Buffer().writeUtf8("text").writeLong(7);
        return buffer.readUtf8(4) + buffer.readLong() + ByteString.encodeUtf8("x").sha256().hex();
    }

    private static Object tokens() throws Exception {
        StringBuilder said = new StringBuilder();
        try (JsonParser parser = new JsonFactory().createParser("{\"a\": [1, 2.5, \"\\u00e9\"]}".getBytes(StandardCharsets.UTF_8))) {
            while (parser.nextToken() != null) {
                said.append(parser.currentToken()).append(parser.getText()).append(' ');
            }
        }
        return said;
    }
}
