package lighterage.droid.natives;

import java.lang.reflect.Field;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** What Android's own `LinkedHashMap` does for `android.util.LruCache`. */
public final class LruCache {
    private static final Field MAP = map();

    private LruCache() {}

    private static Field map() {
        try {
            Field map = android.util.LruCache.class.getDeclaredField("map");
            map.setAccessible(true);
            return map;
        } catch (NoSuchFieldException changed) {
            throw new AssertionError(changed);
        }
    }

    /** The entry that was used the longest ago; null: there is none. */
    public static Map.Entry<?, ?> eldest(android.util.LruCache<?, ?> cache) {
        try {
            Iterator<? extends Map.Entry<?, ?>> entries = ((LinkedHashMap<?, ?>) MAP.get(cache)).entrySet().iterator();
            return entries.hasNext() ? entries.next() : null;
        } catch (IllegalAccessException closed) {
            throw new AssertionError(closed);
        }
    }
}
