"""Asks Kafka 3.9 to encrypt passwords: passwords.tsv.

    python tests/controller/vectors/record_passwords.py LIBS

LIBS is a folder with kafka-clients, kafka-server-common and slf4j-api of 3.9. Each row has key
factory, cipher, bits, iterations, the password, and the encrypted text; the secret is "sesame".
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MEANS = [
    "- AES/CBC/PKCS5Padding 128 4096",
    "PBKDF2WithHmacSHA1 AES/CBC/PKCS5Padding 128 1024",
    "PBKDF2WithHmacSHA224 AES/CBC/PKCS5Padding 192 2048",
    "PBKDF2WithHmacSHA256 AES/CBC/PKCS5Padding 256 1024",
    "PBKDF2WithHmacSHA384 AES/GCM/NoPadding 128 1024",
    "PBKDF2WithHmacSHA512 AES/GCM/NoPadding 256 4096",
]
PASSWORDS = ["test-password", "x", "sixteen letters.", "Łukasz 😀", "a,b:c=d"]


def ask(libs: Path, secret: str, lines: list[str]) -> list[str]:
    command = ["java", "-cp", f"{libs}/*", str(HERE / "Passwords.java"), secret]
    given = "\n".join(lines) + "\n"
    done = subprocess.run(command, input=given, capture_output=True, check=True, encoding="utf-8")
    return done.stdout.splitlines()


def main(libs: Path) -> None:
    rows = [f"{means} {password}" for means in MEANS for password in PASSWORDS]
    answers = ask(libs, "sesame", [f"encode {row}" for row in rows])
    made = [
        "\t".join([*row.split(" ", 4), answer]) + "\n"
        for row, answer in zip(rows, answers, strict=True)
    ]
    (HERE / "passwords.tsv").write_text("".join(made))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
