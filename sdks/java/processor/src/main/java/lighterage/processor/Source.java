package lighterage.processor;

import java.util.List;
import java.util.Locale;
import javax.lang.model.element.ExecutableElement;
import javax.lang.model.element.Modifier;
import javax.lang.model.element.PackageElement;
import javax.lang.model.element.TypeElement;
import javax.lang.model.element.VariableElement;
import javax.lang.model.type.DeclaredType;
import javax.lang.model.type.TypeKind;
import javax.lang.model.type.TypeMirror;
import javax.lang.model.util.ElementFilter;
import lighterage.Offload;

/** The text of one generated class. */
final class Source {
    private final TypeElement owner;
    private final Types types;
    private final StringBuilder body = new StringBuilder();

    Source(TypeElement owner, Types types) {
        this.owner = owner;
        this.types = types;
    }

    /** The generated class's full name. */
    String name() {
        return owner.getQualifiedName() + "_Offload";
    }

    /** All of it. */
    String text() {
        String whole = owner.getQualifiedName().toString();
        int dot = whole.lastIndexOf('.');
        String simple = owner.getSimpleName() + "_Offload";
        return (dot < 0 ? "" : "package " + whole.substring(0, dot) + ";\n\n")
                + "/** The methods of {@link " + owner.getSimpleName() + "}, as the processor offloads them. */\n"
                + "@SuppressWarnings({\"unchecked\", \"cast\"})\n"
                + visibility(owner) + "final class " + simple + " {\n    private " + simple + "() {}\n" + body + "}\n";
    }

    /** Adds a method. */
    void add(ExecutableElement method) throws Types.StaysHere {
        String name = method.getSimpleName().toString();
        String kind = Character.toUpperCase(name.charAt(0)) + name.substring(1) + "Method";
        String constant = name.replaceAll("([a-z0-9])([A-Z])", "$1_$2").toUpperCase(Locale.ROOT);
        String open = visibility(method);
        String given = given(method.getParameters());
        String passed = passed(method.getParameters());
        String declared = declared(method);
        TypeMirror result = method.getReturnType();
        boolean isVoid = result.getKind() == TypeKind.VOID;
        String boxed = boxed(result);
        String perform = "this.<" + boxed + ", RuntimeException>perform(" + passed + ")";
        body.append("\n    /** The method {@link " + owner.getSimpleName() + "#" + name + "}. */\n");
        body.append("    " + open + "static final " + kind + " " + constant + " = new " + kind + "();\n\n");
        body.append("    /** Calls it wherever it ends first. */\n");
        body.append("    " + open + "static " + result + " " + name + "(" + given + ")" + declared + " {\n");
        body.append("        " + (isVoid ? "" : "return ") + constant + ".call(" + passed + ");\n    }\n\n");
        body.append("    /** {@link #" + constant + "}. */\n");
        body.append("    " + open + "static final class " + kind + " extends lighterage.Offloaded<" + kind + "> {\n");
        body.append(constructors(method, kind));
        body.append("        public " + result + " call(" + given + ")" + declared + " {\n");
        body.append("            " + (isVoid ? "" : "return ") + perform + ";\n        }\n\n");
        body.append("        public java.util.concurrent.Future<" + boxed + "> submit(" + given + ") {\n");
        body.append("            return later(" + passed + ");\n        }\n\n");
        body.append("        public lighterage.Explanation explain(" + given + ") {\n");
        body.append("            return explained(" + passed + ");\n        }\n\n");
        body.append(table(method));
        body.append("    }\n");
    }

    private static String constructors(ExecutableElement method, String kind) {
        Offload said = method.getAnnotation(Offload.class);
        String limits = "new lighterage.code.Limits(" + said.timeMs() + "L, " + said.memoryBytes() + "L, "
                + said.bodyBytes() + ")";
        String options = "lighterage.call.Options.of(" + said.deadlineMs() + "L, " + said.retries() + ", "
                + said.local() + ", LIMITS, " + said.reuse() + ")";
        return "        private static final lighterage.code.Limits LIMITS = " + limits + ";\n\n"
                + "        private " + kind + "() {\n"
                + "            super(new Table(), " + options + ");\n        }\n\n"
                + "        private " + kind + "(lighterage.call.Caller caller) {\n"
                + "            super(caller);\n        }\n\n"
                + "        @Override\n        protected " + kind + " with(lighterage.call.Caller other) {\n"
                + "            return new " + kind + "(other);\n        }\n\n";
    }

    private String table(ExecutableElement method) throws Types.StaysHere {
        String entry = owner.getQualifiedName() + "::" + method.getSimpleName();
        boolean isVoid = method.getReturnType().getKind() == TypeKind.VOID;
        StringBuilder call = new StringBuilder();
        call.append(owner.getQualifiedName()).append('.').append(method.getSimpleName()).append('(');
        StringBuilder lower = new StringBuilder();
        List<? extends VariableElement> parameters = method.getParameters();
        for (int at = 0; at < parameters.size(); at++) {
            String cast = "((" + boxed(parameters.get(at).asType()) + ") arguments[" + at + "])";
            call.append(at == 0 ? "" : ", ").append(cast);
            lower.append(at == 0 ? "" : ", ").append(types.lower(parameters.get(at).asType(), cast));
        }
        call.append(')');
        String lift = isVoid ? "null" : types.lift(method.getReturnType(), "value");
        String run = isVoid ? call + ";\n                return null;" : "return " + call + ";";
        return "        private static final class Table extends lighterage.call.Table {\n"
                + "            private Table() {\n                super(\"" + entry + "\");\n            }\n\n"
                + "            @Override\n            protected Object run(Object[] arguments) throws Throwable {\n"
                + "                " + run + "\n            }\n\n"
                + "            @Override\n            protected java.util.List<Object> lower(Object[] arguments) {\n"
                + "                return java.util.Arrays.<Object>asList(new Object[] {" + lower + "});\n"
                + "            }\n\n"
                + "            @Override\n            protected Object lift(Object value) {\n"
                + "                return " + lift + ";\n            }\n"
                + thrown(method)
                + "        }\n";
    }

    /** Exceptions that it declares are made anew, where they have a constructor with a message, or with nothing. */
    private static String thrown(ExecutableElement method) {
        StringBuilder cases = new StringBuilder();
        for (TypeMirror declared : method.getThrownTypes()) {
            TypeElement type = (TypeElement) ((DeclaredType) declared).asElement();
            String make = null;
            for (ExecutableElement constructor : ElementFilter.constructorsIn(type.getEnclosedElements())) {
                List<? extends VariableElement> parameters = constructor.getParameters();
                boolean isOpen = constructor.getModifiers().contains(Modifier.PUBLIC);
                boolean isWords = parameters.size() == 1
                        && parameters.get(0).asType().toString().equals("java.lang.String");
                if (isOpen && isWords) {
                    make = "new " + type.getQualifiedName() + "(message)";
                } else if (isOpen && parameters.isEmpty() && make == null) {
                    make = "new " + type.getQualifiedName() + "()";
                }
            }
            if (make != null && !type.getModifiers().contains(Modifier.ABSTRACT)) {
                cases.append("                if (name.equals(\"" + binaryName(type) + "\")) {\n");
                cases.append("                    return " + make + ";\n                }\n");
            }
        }
        if (cases.length() == 0) {
            return "";
        }
        return "\n            @Override\n"
                + "            protected Throwable thrown(String name, String message) {\n"
                + cases
                + "                return null;\n            }\n";
    }

    private static String binaryName(TypeElement type) {
        if (type.getEnclosingElement() instanceof PackageElement) {
            return type.getQualifiedName().toString();
        }
        return binaryName((TypeElement) type.getEnclosingElement()) + "$" + type.getSimpleName();
    }

    private static String visibility(javax.lang.model.element.Element element) {
        return element.getModifiers().contains(Modifier.PUBLIC) ? "public " : "";
    }

    private static String given(List<? extends VariableElement> parameters) {
        StringBuilder out = new StringBuilder();
        for (int at = 0; at < parameters.size(); at++) {
            out.append(at == 0 ? "" : ", ").append(parameters.get(at).asType()).append(" argument").append(at);
        }
        return out.toString();
    }

    /** As an array of its own: one argument that is an array is not the arguments. */
    private static String passed(List<? extends VariableElement> parameters) {
        StringBuilder out = new StringBuilder();
        for (int at = 0; at < parameters.size(); at++) {
            out.append(at == 0 ? "" : ", ").append("argument").append(at);
        }
        return out.toString();
    }

    private static String declared(ExecutableElement method) {
        StringBuilder out = new StringBuilder();
        for (TypeMirror type : method.getThrownTypes()) {
            out.append(out.length() == 0 ? " throws " : ", ").append(type);
        }
        return out.toString();
    }

    private static String boxed(TypeMirror type) {
        switch (type.getKind()) {
            case VOID:
                return "Void";
            case INT:
                return "Integer";
            case CHAR:
                return "Character";
            case BOOLEAN:
            case BYTE:
            case SHORT:
            case LONG:
            case FLOAT:
            case DOUBLE:
                String name = type.toString();
                return Character.toUpperCase(name.charAt(0)) + name.substring(1);
            default:
                return type.toString();
        }
    }
}
