package lighterage.unit;

import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import lighterage.frame.Buffer;
import lighterage.frame.Frame;
import lighterage.frame.FrameException;
import lighterage.frame.Limits;
import lighterage.frame.Tagged;
import lighterage.json.Json;

/**
 * The function of a bundle: one piece of work after another is handed to it, and what comes of it becomes a frame.
 *
 * <p>A handler takes the event, its text, its bytes or nothing. Any other method gets the arguments that the event's
 * data is as JSON, and replies in JSON. With the contract `call` the data is a frame, and so is the reply.
 */
final class Work {
    /** Characters of what is said in one line about an exception. */
    static final int WORDS_MAX = 4_000;
    private static final int TRACE_MAX = 200;

    /** What a handler may take: the event, or its data. */
    private static final Set<Class<?>> WHOLE = Set.of(Event.class, String.class, byte[].class);

    private final Class<?> kind;
    private final List<Method> methods = new ArrayList<>();
    private final boolean isCall;
    private final boolean isHandler;
    private Object instance;

    /** Finds `pkg.Class::method`. Throws what the class throws when it is initialised. */
    Work(boolean isCall, String entry) throws ReflectiveOperationException {
        this.isCall = isCall;
        int colons = entry.indexOf("::");
        String name = entry.substring(colons + 2);
        kind = Class.forName(entry.substring(0, colons), true, ClassLoader.getSystemClassLoader());
        for (Class<?> above = kind; above != null && above != Object.class; above = above.getSuperclass()) {
            for (Method method : above.getDeclaredMethods()) {
                if (method.getName().equals(name) && isWritten(method) && isNew(method)) {
                    method.setAccessible(true);
                    methods.add(method);
                }
            }
        }
        if (methods.isEmpty()) {
            throw new NoSuchMethodException(kind.getName() + " has no method " + name);
        }
        isHandler = !isCall && methods.size() == 1 && isHandler(methods.get(0));
    }

    /** Whether somebody wrote it, and not the compiler; the body of a lambda is written too. */
    private static boolean isWritten(Method method) {
        return !method.isBridge() && (!method.isSynthetic() || method.getName().startsWith("lambda$"));
    }

    /** One that is overridden is not called. */
    private boolean isNew(Method method) {
        for (Method known : methods) {
            if (known.getParameterCount() == method.getParameterCount()) {
                if (List.of(known.getParameterTypes()).equals(List.of(method.getParameterTypes()))) {
                    return false;
                }
            }
        }
        return true;
    }

    private static boolean isHandler(Method method) {
        Class<?>[] types = method.getParameterTypes();
        return types.length == 0 || types.length == 1 && WHOLE.contains(types[0]);
    }

    /** Does so many pieces of work. */
    void serve(Link link, int calls) throws IOException, FrameException {
        for (int call = 0; call < calls; call++) {
            Frame work = link.receive();
            Frame outcome = outcome(work);
            System.out.flush();
            System.err.flush();
            try {
                link.send(outcome);
            } catch (OutOfMemoryError full) {
                link.send(failure(work.id(), "memory", "the reply does not fit into memory"));
            }
        }
    }

    private Frame outcome(Frame work) {
        try {
            return isCall ? call(work) : event(work);
        } catch (Failure said) {
            return failure(work.id(), said.kind(), words(said, false));
        } catch (Throwable thrown) {
            return crashed(work.id(), thrown);
        }
    }

    private Frame event(Frame work) throws Throwable {
        Event event = Event.in(work, Frame.CALL);
        if (!isHandler) {
            Ready ready = ready(new Call(inJson(event.data())));
            Object value = invoke(ready.method, ready.object, ready.arguments);
            String json = Json.write(Values.lower(value, false));
            return new Frame(Frame.REPLY, work.id(), new Buffer(json.getBytes(StandardCharsets.UTF_8)));
        }
        Method method = methods.get(0);
        Class<?>[] types = method.getParameterTypes();
        Object[] arguments = new Object[types.length];
        if (types.length == 1) {
            arguments[0] = types[0] == Event.class ? event : types[0] == String.class ? event.text() : event.data();
        }
        return new Frame(Frame.REPLY, work.id(), new Buffer(replyBytes(invoke(method, null, arguments))));
    }

    private static byte[] replyBytes(Object reply) {
        if (reply == null) {
            return new byte[0];
        }
        if (reply instanceof byte[] bytes) {
            return bytes;
        }
        String text = reply instanceof CharSequence ? reply.toString() : Json.write(Values.lower(reply, false));
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private Frame call(Frame work) throws Throwable {
        long began = System.nanoTime();
        Ready ready = ready(new Call(inFrame(Event.bytes(Event.fields(work.body()).get("data")))));
        long decoded = System.nanoTime();
        Object value = null;
        Throwable raised = null;
        try {
            value = invoke(ready.method, ready.object, ready.arguments);
        } catch (Failure | VirtualMachineError ends) {
            throw ends;
        } catch (Throwable thrown) {
            raised = thrown;
        }
        long ran = System.nanoTime();
        boolean isThrown = raised != null;
        Object plain = isThrown ? new Tagged("thrown", Thrown.fields(raised, TRACE_MAX)) : Values.lower(value, true);
        byte[] reply = new Frame(Frame.REPLY, 0, plain).encode(false).array();
        Map<String, Object> timing = new LinkedHashMap<>();
        timing.put("decode", (decoded - began) / 1e9);
        timing.put("run", (ran - decoded) / 1e9);
        timing.put("encode", (System.nanoTime() - ran) / 1e9);
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("data", new Buffer(reply));
        body.put("timing", timing);
        body.put("raised", isThrown);
        return new Frame(Frame.REPLY, work.id(), body);
    }

    /** A method, its arguments as it wants them, and the object whose method it is; null: the unit's own. */
    private record Ready(Method method, Object object, Object[] arguments) {}

    private Ready ready(Call call) {
        Method method = method(call);
        Object[] arguments = new Object[call.arguments.size()];
        Type[] types = method.getGenericParameterTypes();
        for (int index = 0; index < arguments.length; index++) {
            arguments[index] = lift(index, call.arguments.get(index), types[index]);
        }
        return new Ready(method, call.fields == null ? null : lift(-1, call.fields, kind), arguments);
    }

    /** What a caller asks for: arguments, and perhaps the fields of the object whose method it is. */
    private static final class Call {
        private final List<?> arguments;
        private final Map<?, ?> fields;

        /** A list is the arguments; a map with `args` has them, and perhaps `this`; any other value is the only one. */
        Call(Object said) {
            Map<?, ?> map = said instanceof Map<?, ?> one && one.get("args") instanceof List<?> ? one : null;
            arguments = map != null ? (List<?>) map.get("args") : said instanceof List<?> list ? list : listOf(said);
            fields = map != null && map.get("this") instanceof Map<?, ?> object ? object : null;
        }

        private static List<Object> listOf(Object value) {
            List<Object> list = new ArrayList<>();
            if (value != Nothing.NOTHING) {
                list.add(value);
            }
            return list;
        }
    }

    /** Stands for a body without bytes. */
    private enum Nothing {
        NOTHING
    }

    private static Object inJson(byte[] data) {
        try {
            return data.length == 0 ? Nothing.NOTHING : Json.read(new String(data, StandardCharsets.UTF_8));
        } catch (IllegalArgumentException strange) {
            throw new Invalid(strange.getMessage() + "; the arguments are a JSON array, as [1, \"two\"]", strange);
        }
    }

    private static Object inFrame(byte[] data) throws FrameException {
        try {
            return Frame.decode(ByteBuffer.wrap(data), Limits.CALL).body();
        } catch (FrameException strange) {
            throw new Invalid("the call is no frame: " + strange.word, strange);
        }
    }

    private Method method(Call call) {
        Method found = null;
        for (Method method : methods) {
            if (method.getParameterCount() == call.arguments.size()) {
                if (found != null) {
                    throw new Invalid("there are several methods " + method.getName() + " that take as many arguments");
                }
                found = method;
            }
        }
        if (found == null) {
            String takes = methods.get(0).getName() + " takes " + methods.get(0).getParameterCount();
            throw new Invalid(takes + " arguments, the call has " + call.arguments.size());
        }
        return found;
    }

    private static Object lift(int index, Object value, Type type) {
        try {
            return Values.lift(value, type);
        } catch (IllegalArgumentException wrong) {
            String place = index < 0 ? "the object" : "argument " + (index + 1);
            throw new Invalid(place + ": " + wrong.getMessage(), wrong);
        }
    }

    private Object invoke(Method method, Object object, Object[] arguments) throws Throwable {
        try {
            return method.invoke(Modifier.isStatic(method.getModifiers()) ? null : owner(object), arguments);
        } catch (InvocationTargetException thrown) {
            throw thrown.getCause();
        }
    }

    /** The object whose method is called: the caller's, or the unit's only one. */
    private Object owner(Object object) throws Throwable {
        if (object != null) {
            return object;
        }
        if (instance == null) {
            try {
                Constructor<?> constructor = kind.getDeclaredConstructor();
                constructor.setAccessible(true);
                instance = constructor.newInstance();
            } catch (InvocationTargetException thrown) {
                throw thrown.getCause();
            }
        }
        return instance;
    }

    private static Frame crashed(long id, Throwable thrown) {
        Thrown.print(thrown);
        return failure(id, Thrown.kind(thrown), words(thrown, true));
    }

    static String words(Throwable thrown, boolean named) {
        String message = Thrown.message(thrown);
        String words = String.valueOf(message);
        if (named) {
            words = thrown.getClass().getName() + (message == null ? "" : ": " + message);
        }
        return words.length() > WORDS_MAX ? words.substring(0, WORDS_MAX) : words;
    }

    static Frame failure(long id, String kind, String message) {
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("kind", kind);
        body.put("message", message);
        return new Frame(Frame.FAILURE, id, body);
    }
}
