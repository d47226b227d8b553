// Kafka's command line tools, one after another in one JVM: most of a tool's time is the JVM's start.
//
//   {"main":CLASS,"arguments":[TEXT...],"given":TEXT}     given: what the tool reads on stdin
//       -> {"status":N,"out":TEXT,"err":TEXT}
//
// A tool runs in a class loader of its own, made of the jars that are the arguments of this program:
// it does not find the static fields of the tool before it. An exit ends the tool and not the JVM;
// then its shutdown hooks run.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.utils.Exit;

public class ToolRunner {
    static final ObjectMapper JSON = new ObjectMapper();

    static class Ended extends Error {
        Ended(int status) {
            super("exit with status " + status);
        }
    }

    // Scala's println keeps the stream that it found first: these two stay.
    final ByteArrayOutputStream out = new ByteArrayOutputStream();
    final ByteArrayOutputStream err = new ByteArrayOutputStream();
    final AtomicReference<Integer> status = new AtomicReference<>();
    final List<Runnable> hooks = new CopyOnWriteArrayList<>();
    final URL[] jars;

    ToolRunner(String[] paths) throws Exception {
        jars = new URL[paths.length];
        for (int i = 0; i < paths.length; i++) {
            jars[i] = new File(paths[i]).toURI().toURL();
        }
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
    }

    void end(int code) {
        status.compareAndSet(null, code); // a tool that catches Ended says another status later
        throw new Ended(code);
    }

    ObjectNode run(JsonNode order) throws Exception {
        out.reset();
        err.reset();
        hooks.clear();
        status.set(null);
        System.setIn(
                new ByteArrayInputStream(
                        order.get("given").asText().getBytes(StandardCharsets.UTF_8)));
        List<String> arguments = new ArrayList<>();
        order.get("arguments").forEach(one -> arguments.add(one.asText()));
        try (URLClassLoader loader = new URLClassLoader(jars, ToolRunner.class.getClassLoader())) {
            Thread.currentThread().setContextClassLoader(loader);
            call(loader.loadClass(order.get("main").asText()), arguments.toArray(new String[0]));
            hooks.forEach(Runnable::run);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("status", status.get() == null ? 0 : status.get());
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        return answer.put("err", err.toString(StandardCharsets.UTF_8));
    }

    void call(Class<?> tool, String[] arguments) throws Exception {
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof Ended)) { // as a JVM whose main thread fails
                raised.getCause().printStackTrace();
                status.compareAndSet(null, 1);
            }
        }
    }

    public static void main(String[] jars) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader orders =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ToolRunner runner = new ToolRunner(jars);
        String line;
        while ((line = orders.readLine()) != null) {
            answers.println(JSON.writeValueAsString(runner.run(JSON.readTree(line))));
        }
        System.exit(0);
    }
}
