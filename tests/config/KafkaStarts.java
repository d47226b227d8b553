import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import kafka.server.KafkaConfig;

/** Reads settings, one broker a line, NAME=VALUE between tabs; prints "starts" or why not. */
public class KafkaStarts {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, String> settings = new HashMap<>();
            for (String pair : line.split("\t")) {
                int equals = pair.indexOf('=');
                settings.put(pair.substring(0, equals), pair.substring(equals + 1));
            }
            String answer = "starts";
            try {
                new KafkaConfig(settings);
            } catch (RuntimeException refused) {
                answer = String.valueOf(refused.getMessage()).replaceAll("\\s+", " ");
            }
            System.out.println("= " + answer);
        }
    }
}
