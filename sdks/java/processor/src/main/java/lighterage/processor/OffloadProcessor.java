package lighterage.processor;

import java.io.IOException;
import java.io.Writer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.annotation.processing.AbstractProcessor;
import javax.annotation.processing.RoundEnvironment;
import javax.annotation.processing.SupportedAnnotationTypes;
import javax.lang.model.SourceVersion;
import javax.lang.model.element.Element;
import javax.lang.model.element.ExecutableElement;
import javax.lang.model.element.Modifier;
import javax.lang.model.element.NestingKind;
import javax.lang.model.element.TypeElement;
import javax.tools.Diagnostic;
import lighterage.Offload;

/**
 * Writes the class `Name_Offload` for each class `Name` with methods that are marked {@link Offload}.
 *
 * <pre>
 * methods of a class ─▶ refuse what cannot travel ─▶ Types: how each value does ─▶ Source: the class's text
 * </pre>
 */
@SupportedAnnotationTypes("lighterage.Offload")
public final class OffloadProcessor extends AbstractProcessor {
    /** For javac, which finds it by its name. */
    public OffloadProcessor() {}

    @Override
    public SourceVersion getSupportedSourceVersion() {
        return SourceVersion.latestSupported();
    }

    @Override
    public boolean process(Set<? extends TypeElement> annotations, RoundEnvironment round) {
        Map<TypeElement, List<ExecutableElement>> classes = new LinkedHashMap<>();
        for (Element element : round.getElementsAnnotatedWith(Offload.class)) {
            ExecutableElement method = (ExecutableElement) element;
            TypeElement owner = (TypeElement) method.getEnclosingElement();
            if (refused(owner, method)) {
                continue;
            }
            List<ExecutableElement> methods = classes.get(owner);
            if (methods == null) {
                methods = new ArrayList<>();
                classes.put(owner, methods);
            }
            methods.add(method);
        }
        for (Map.Entry<TypeElement, List<ExecutableElement>> entry : classes.entrySet()) {
            write(entry.getKey(), entry.getValue());
        }
        return true;
    }

    private boolean refused(TypeElement owner, ExecutableElement method) {
        String why = null;
        if (!method.getModifiers().contains(Modifier.STATIC)) {
            why = "is not static: what it needs of its object is to be among its parameters";
        } else if (method.getModifiers().contains(Modifier.PRIVATE)) {
            why = "is private: the class that is made for it calls it";
        } else if (!method.getTypeParameters().isEmpty()) {
            why = "has type parameters: write the types that it is called with";
        } else if (owner.getNestingKind() != NestingKind.TOP_LEVEL) {
            why = "is in an inner class: move it to a class of its own";
        } else if (count(owner, method) > 1) {
            why = "has the name of another method of its class: give it a name of its own";
        } else {
            why = wrong(method.getAnnotation(Offload.class));
        }
        if (why != null) {
            error(method, why);
        }
        return why != null;
    }

    /** What is wrong with a value of the annotation; null: nothing. */
    private static String wrong(Offload said) {
        if (said.timeMs() <= 0 || said.memoryBytes() <= 0 || said.bodyBytes() <= 0) {
            String limits = "timeMs " + said.timeMs() + ", memoryBytes " + said.memoryBytes() + " and bodyBytes "
                    + said.bodyBytes();
            return "has " + limits + ": each is to be more than 0, and a product of int may have overflowed";
        } else if (said.deadlineMs() < 0 || said.retries() < 0) {
            return "has deadlineMs " + said.deadlineMs() + " and retries " + said.retries() + ": neither is below 0";
        }
        return null;
    }

    private static int count(TypeElement owner, ExecutableElement method) {
        int count = 0;
        for (Element other : owner.getEnclosedElements()) {
            boolean isMethod = other instanceof ExecutableElement;
            count += isMethod && other.getSimpleName().equals(method.getSimpleName()) ? 1 : 0;
        }
        return count;
    }

    private void write(TypeElement owner, List<ExecutableElement> methods) {
        Source source = new Source(owner, new Types(processingEnv.getTypeUtils(), processingEnv.getElementUtils()));
        for (ExecutableElement method : methods) {
            try {
                source.add(method);
            } catch (Types.StaysHere stays) {
                error(method, stays.getMessage());
                return;
            }
        }
        try (Writer out = processingEnv.getFiler().createSourceFile(source.name(), owner).openWriter()) {
            out.write(source.text());
        } catch (IOException error) {
            error(owner, "its offloaded class cannot be written: " + error.getMessage());
        }
    }

    private void error(Element element, String why) {
        processingEnv.getMessager().printMessage(Diagnostic.Kind.ERROR, "@Offload " + element + " " + why, element);
    }
}
