// Prints what Java and Kafka make of a certificate's subject. Each line of the input is
//     subject HEX                 -> the name that X500Principal gives it (RFC 2253)
//     rules RULES TAB NAME        -> what SslPrincipalMapper makes of the name
// and each line of the output is `= TEXT`, or `! CLASS: MESSAGE`. Texts are escaped as in JSON.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

class Principals {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line));
        }
    }

    private static String answer(String line) {
        String asked = line.substring(line.indexOf(' ') + 1);
        try {
            if (line.startsWith("subject ")) {
                return "= " + escaped(new X500Principal(HexFormat.of().parseHex(asked)).getName());
            }
            String[] parts = asked.split("\t", -1);
            return "= " + escaped(SslPrincipalMapper.fromRules(parts[0]).getName(parts[1]));
        } catch (Exception e) {
            return "! " + escaped(e.getClass().getSimpleName() + ": " + e.getMessage());
        }
    }

    private static String escaped(String text) {
        StringBuilder out = new StringBuilder();
        for (char c : text.toCharArray()) {
            out.append(c < ' ' || c > '~' || c == '\\' ? String.format("\\u%04x", (int) c) : "" + c);
        }
        return out.toString();
    }
}
