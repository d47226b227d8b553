// Each line of the input is `encode KEYFACTORY CIPHER BITS ITERATIONS PASSWORD` or `decode TEXT`
// (KEYFACTORY may be -); each line of the output is what Kafka's encoder answers, or `! CLASS`. The
// secret is the first argument. server-common of Kafka 3.9 has the class; 4.0 dropped it.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

class Passwords {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(answer(new Password(args[0]), line.split(" ", 6)));
            } catch (Exception e) {
                out.println("! " + e.getClass().getSimpleName());
            }
        }
    }

    private static String answer(Password secret, String[] asked) throws Exception {
        if (asked[0].equals("decode")) {
            return PasswordEncoder.encrypting(secret, null, "AES/" + (asked[1].contains("AES/GCM") ? "GCM/NoPadding" : "CBC/PKCS5Padding"), 128, 4096)
                .decode(asked[1]).value();
        }
        return PasswordEncoder.encrypting(
                secret, asked[1].equals("-") ? null : asked[1], asked[2],
                Integer.parseInt(asked[3]), Integer.parseInt(asked[4]))
            .encode(new Password(asked[5]));
    }
}
