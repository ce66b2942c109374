package lighterage.processor;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import javax.lang.model.element.Element;
import javax.lang.model.element.ElementKind;
import javax.lang.model.element.ExecutableElement;
import javax.lang.model.element.Modifier;
import javax.lang.model.element.TypeElement;
import javax.lang.model.element.VariableElement;
import javax.lang.model.type.ArrayType;
import javax.lang.model.type.DeclaredType;
import javax.lang.model.type.TypeKind;
import javax.lang.model.type.TypeMirror;
import javax.lang.model.util.ElementFilter;
import javax.lang.model.util.Elements;

/** How a value of each type travels, as expressions of Java: `lower` towards a node, `lift` back. */
final class Types {
    private static final String VALUES = "lighterage.travel.Values.";
    /** Objects in objects. */
    private static final int DEPTH_MAX = 16;

    /** A type of which no value has a meaning on another machine. */
    static final class StaysHere extends Exception {
        private static final long serialVersionUID = 1;

        StaysHere(String why) {
            super(why);
        }
    }

    private final javax.lang.model.util.Types types;
    private final Elements elements;
    private final Set<String> around = new HashSet<>();
    private int names;

    Types(javax.lang.model.util.Types types, Elements elements) {
        this.types = types;
        this.elements = elements;
    }

    /** The expression that makes a plain value of the expression `value`, which is of this type. */
    String lower(TypeMirror type, String value) throws StaysHere {
        if (type.getKind().isPrimitive()) {
            return type.getKind() == TypeKind.CHAR ? VALUES + "of(" + value + ")" : value;
        }
        if (type.getKind() == TypeKind.ARRAY) {
            component(type);
            return VALUES + "of(" + value + ")";
        }
        String name = name(type);
        if (isBoxed(name) || name.equals("java.lang.String")) {
            return name.equals("java.lang.Character") ? VALUES + "of(" + value + ")" : value;
        }
        if (isEnum(type)) {
            return VALUES + "of(" + value + ")";
        }
        if (name.equals("java.util.List") || name.equals("java.util.Map")) {
            TypeMirror inner = item(type, name);
            String item = "item" + names++;
            String each = item + " -> " + lower(inner, "((" + inner + ") " + item + ")");
            return VALUES + (name.equals("java.util.List") ? "list" : "map") + "(" + value + ", " + each + ")";
        }
        enter(type);
        StringBuilder out = new StringBuilder(value + " == null ? null : " + VALUES + "object(");
        String before = "";
        for (Element part : parts(type)) {
            String field = part.getSimpleName().toString();
            String access = value + "." + field + (part instanceof ExecutableElement ? "()" : "");
            out.append(before).append('"').append(field).append("\", ").append(lower(type(part), access));
            before = ", ";
        }
        around.remove(name);
        return "(" + out.append("))");
    }

    /** The expression that makes a value of this type of the plain value `value`. */
    String lift(TypeMirror type, String value) throws StaysHere {
        switch (type.getKind()) {
            case BOOLEAN:
                return VALUES + "given(" + VALUES + "asBoolean(" + value + "))";
            case CHAR:
                return VALUES + "given(" + VALUES + "asChar(" + value + "))";
            case BYTE:
            case SHORT:
            case INT:
            case LONG:
            case FLOAT:
            case DOUBLE:
                return VALUES + "given(" + VALUES + "as" + capital(type.toString()) + "(" + value + "))";
            case ARRAY:
                return VALUES + "as" + capital(component(type)) + "s(" + value + ")";
            default:
        }
        String name = name(type);
        if (name.equals("java.lang.String")) {
            return VALUES + "asText(" + value + ")";
        }
        if (isBoxed(name)) {
            return VALUES + "as" + capital(types.unboxedType(type).toString()) + "(" + value + ")";
        }
        if (isEnum(type)) {
            return VALUES + "asEnum(" + value + ", " + name + ".class)";
        }
        if (name.equals("java.util.List") || name.equals("java.util.Map")) {
            TypeMirror inner = item(type, name);
            String item = "item" + names++;
            String as = name.equals("java.util.List") ? "asList(" : "asMap(";
            String each = item + " -> " + lift(inner, item);
            return "(" + type + ") (Object) " + VALUES + as + value + ", " + each + ")";
        }
        return object(type, name, value);
    }

    private String object(TypeMirror type, String name, String value) throws StaysHere {
        enter(type);
        List<Element> parts = parts(type);
        boolean isRecord = !parts.isEmpty() && parts.get(0) instanceof ExecutableElement;
        String plain = "plain" + names++;
        StringBuilder out = new StringBuilder();
        String before = "";
        String made = "made" + names++;
        for (Element part : parts) {
            String field = VALUES + "field(" + plain + ", \"" + part.getSimpleName() + "\")";
            String lifted = lift(type(part), field);
            if (isRecord) {
                out.append(before).append(lifted);
                before = ", ";
            } else {
                out.append(made).append('.').append(part.getSimpleName()).append(" = ").append(lifted).append("; ");
            }
        }
        around.remove(name);
        String each = "(lighterage.travel.Values.Each) " + plain + " -> { if (" + plain + " == null) { return null; } ";
        String body = isRecord
                ? "return new " + name + "(" + out + ");"
                : name + " " + made + " = new " + name + "(); " + out + "return " + made + ";";
        return "(" + name + ") (" + each + body + " }).of(" + value + ")";
    }

    /** The type of a field, or of a record's component. */
    private static TypeMirror type(Element part) {
        return part instanceof ExecutableElement ? ((ExecutableElement) part).getReturnType() : part.asType();
    }

    /** The components of a record, or the fields of a class. */
    private List<Element> parts(TypeMirror type) throws StaysHere {
        TypeElement element = (TypeElement) types.asElement(type);
        List<Element> parts = new ArrayList<>();
        boolean isRecord = element.getKind().name().equals("RECORD");
        for (VariableElement field : ElementFilter.fieldsIn(elements.getAllMembers(element))) {
            if (field.getModifiers().contains(Modifier.STATIC)) {
                continue;
            }
            if (isRecord) {
                parts.add(accessor(element, field));
                continue;
            }
            if (field.getModifiers().contains(Modifier.PRIVATE) || field.getModifiers().contains(Modifier.FINAL)) {
                String how = field.getModifiers().contains(Modifier.PRIVATE) ? "private" : "final";
                throw new StaysHere("has a " + type + ", whose field " + field + " is " + how
                        + ": the class that is made for it reads and writes fields, so let it, or write a record");
            }
            parts.add(field);
        }
        return parts;
    }

    private static Element accessor(TypeElement element, VariableElement field) throws StaysHere {
        for (ExecutableElement method : ElementFilter.methodsIn(element.getEnclosedElements())) {
            if (method.getSimpleName().equals(field.getSimpleName()) && method.getParameters().isEmpty()) {
                return method;
            }
        }
        throw new StaysHere("has a " + element + " without " + field + "()");
    }

    /** A class of fields begins: what it is must be something that can be made anew. */
    private void enter(TypeMirror type) throws StaysHere {
        String name = name(type);
        if (type.getKind() != TypeKind.DECLARED) {
            throw new StaysHere("has a " + type + ", which does not travel");
        }
        TypeElement element = (TypeElement) types.asElement(type);
        boolean isOfPlatform = name.startsWith("java.") || name.startsWith("javax.") || name.startsWith("android.");
        boolean isClass = element.getKind() == ElementKind.CLASS || element.getKind().name().equals("RECORD");
        if (isOfPlatform || !isClass || element.getModifiers().contains(Modifier.ABSTRACT)) {
            throw new StaysHere("has a " + type + ", which has no meaning on another machine: pass what it holds, as "
                    + "numbers, texts, arrays, lists and records");
        }
        boolean isInner = element.getEnclosingElement().getKind().isClass();
        if (isInner && !element.getModifiers().contains(Modifier.STATIC)) {
            throw new StaysHere("has a " + type + ", which belongs to an object around it: make the class static");
        }
        if (!element.getTypeParameters().isEmpty()) {
            throw new StaysHere("has a " + type + ", whose type parameters are not known on a node");
        }
        if (element.getKind() == ElementKind.CLASS && !hasPlainConstructor(element)) {
            throw new StaysHere("has a " + type + ", which has no constructor without parameters");
        }
        if (!around.add(name) || around.size() > DEPTH_MAX) {
            throw new StaysHere("has a " + type + ", which holds others of its kind: write a list of them");
        }
    }

    private static boolean hasPlainConstructor(TypeElement element) {
        for (ExecutableElement constructor : ElementFilter.constructorsIn(element.getEnclosedElements())) {
            boolean isOpen = !constructor.getModifiers().contains(Modifier.PRIVATE);
            if (isOpen && constructor.getParameters().isEmpty()) {
                return true;
            }
        }
        return false;
    }

    private static String component(TypeMirror type) throws StaysHere {
        TypeMirror component = ((ArrayType) type).getComponentType();
        switch (component.getKind()) {
            case BYTE:
            case INT:
            case LONG:
            case FLOAT:
            case DOUBLE:
                return component.toString();
            default:
                throw new StaysHere("has a " + type + ": arrays are of byte, int, long, float or double; write a List");
        }
    }

    private static TypeMirror item(TypeMirror type, String name) throws StaysHere {
        List<? extends TypeMirror> arguments = ((DeclaredType) type).getTypeArguments();
        boolean isMap = name.equals("java.util.Map");
        if (arguments.isEmpty() || isMap && !arguments.get(0).toString().equals("java.lang.String")) {
            throw new StaysHere("has a " + type + ": say of what it is; the keys of a Map are texts");
        }
        TypeMirror inner = arguments.get(arguments.size() - 1);
        if (inner.getKind() == TypeKind.WILDCARD || inner.getKind() == TypeKind.TYPEVAR) {
            throw new StaysHere("has a " + type + ": say exactly of what it is");
        }
        return inner;
    }

    private boolean isEnum(TypeMirror type) {
        Element element = types.asElement(type);
        return element != null && element.getKind() == ElementKind.ENUM;
    }

    private static boolean isBoxed(String name) {
        switch (name) {
            case "java.lang.Boolean":
            case "java.lang.Character":
            case "java.lang.Byte":
            case "java.lang.Short":
            case "java.lang.Integer":
            case "java.lang.Long":
            case "java.lang.Float":
            case "java.lang.Double":
                return true;
            default:
                return false;
        }
    }

    private String name(TypeMirror type) {
        Element element = types.asElement(type);
        return element instanceof TypeElement ? ((TypeElement) element).getQualifiedName().toString() : type.toString();
    }

    private static String capital(String word) {
        return Character.toUpperCase(word.charAt(0)) + word.substring(1);
    }
}
