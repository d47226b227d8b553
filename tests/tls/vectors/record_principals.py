"""Asks Java 17 and Apache Kafka 4.3.1 for the principals of certificates: principals.tsv.

    python tests/tls/vectors/record_principals.py ~/.cache/barnabas/kafka/4.3.1/libs

Each row has the question and the answer of Principals.java, which says what they look like.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PRINTABLE, UTF8, IA5, T61, BMP, UNIVERSAL, GENERAL, NUMERIC = 19, 12, 22, 20, 30, 28, 27, 18
OIDS = {
    "CN": "550403",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "STREET": "550409",
    "O": "55040a",
    "OU": "55040b",
    "DC": "0992268993f22c640119",
    "UID": "0992268993f22c640101",
    "title": "55040c",
    "surname": "550404",
    "serialNumber": "550405",
    "dnQualifier": "55042e",
    "givenName": "55042a",
    "emailAddress": "2a864886f70d010901",
    "long": "2b0601040182bf7f8180808001",
    "two": "883703",
}


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    body = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(body)]) + body + content


def pair(kind: str, value: str | bytes, tag: int = UTF8) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return der(0x30, der(6, bytes.fromhex(OIDS[kind])) + der(tag, data))


def rdn(*pairs: bytes) -> bytes:
    return der(0x31, b"".join(pairs))


def name(*rdns: bytes) -> bytes:
    return der(0x30, b"".join(rdns))


def subjects() -> list[bytes]:
    found = [
        name(),
        name(rdn(pair("CN", "alice"))),
        name(
            rdn(pair("C", "US", PRINTABLE)),
            rdn(pair("ST", "MD")),
            rdn(pair("L", "Fulton")),
            rdn(pair("O", "mycp")),
            rdn(pair("OU", "SME")),
            rdn(pair("CN", "Duke")),
        ),
        name(rdn(pair("CN", "a"), pair("OU", "b"), pair("UID", "c")), rdn(pair("O", "x"))),
        name(rdn(pair("OU", "b"), pair("CN", "a"))),
        name(rdn(pair("DC", "com", IA5)), rdn(pair("DC", "example", IA5)), rdn(pair("UID", "u"))),
        name(rdn(pair("emailAddress", "a@example.com", IA5)), rdn(pair("CN", "a"))),
        name(rdn(pair("emailAddress", "a" * 200, IA5))),
        name(rdn(pair("CN", "x" * 300))),
    ]
    for kind in OIDS:
        found.append(name(rdn(pair(kind, "v"))))
    for text in (
        "",
        " ",
        "  ",
        "   a  b   ",
        "\ra\r",
        "\ta\t",
        "\na\n",
        "#a",
        "a#b",
        "a,b",
        "a+b",
        'a"b',
        "a\\b",
        "a<b>c",
        "a;b",
        "a=b",
        "a/b",
        "\\",
        "\\ ",
        " \\",
        "# ",
        "a\0b",
        "\0",
        "Łukasz Ünal",
        "日本",
        "😀",
        "a\u0301",
        "\u200b",
        "a@b_c*d",
        "=",
        "==",
        ",,",
        "User:admin",
        "CN=admin,O=Example",
        "\x7f\x01",
    ):
        found.append(name(rdn(pair("CN", text))))
        found.append(name(rdn(pair("O", text)), rdn(pair("CN", text))))
    for raw in (
        b"\xff",
        b"a\xffb",
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xed\xa0\x80",
        b"\xed\xa0",
        b"\xed\xa0a",
        b"\xc0\x80",
        b"\xf5\x80\x80\x80",
        b"\xe2\x82a",
        b"\xf0\x90a",
        b"\x80\x80",
        b"\xe0\x80\x80",
    ):
        for tag in (UTF8, T61, PRINTABLE, IA5):
            found.append(name(rdn(pair("CN", raw, tag))))
    for tag in (PRINTABLE, IA5, T61, GENERAL):
        found.append(name(rdn(pair("CN", b"alice *@", tag))))
    found.append(name(rdn(pair("CN", "ab".encode("utf-16-be"), BMP))))
    found.append(name(rdn(pair("CN", "Łk日".encode("utf-16-be"), BMP))))
    found.append(name(rdn(pair("CN", "ab".encode("utf-32-be"), UNIVERSAL))))
    for tag in (NUMERIC, 4, 2, 3, 26, 21, 23):
        found.append(name(rdn(pair("CN", b"\x0012345", tag))))
    found.append(name(rdn(der(0x30, der(6, bytes.fromhex("550403")) + der(0x30, der(12, b"a"))))))
    found.append(name(rdn(pair("long", "v" * 130))))
    return found


RULES = [
    "DEFAULT",
    "",
    ",,",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),.*$/$1/U, DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
    "RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT",
    "RULE:(.*)/x$1/",
    "RULE:(.*)/$0/",
    "RULE:(.*?)/[$1]/",
    "RULE:.*/fixed/",
    "RULE:^.*$/fixed/U",
    "RULE:CN=([^,]*).*/$1$2/",
    "RULE:CN=([^,]*).*/$12/",
    "RULE:CN=([^,]*),(.*)/$2-$1-$3/",
    "RULE:CN=([^,]*).*/a\\/b\\$c$1/",
    "RULE:^(CN=.*)$/$1/L",
    "RULE:^C(N)=.*$/$1$/",
    "RULE:.*/$1/",
    "RULE:.*/a\\\\b/",
    "default",
    "DEFAULT/L",
    "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
    "RULE:^CN=(.*/$1/",
    "RULE:://,DEFAULT",
    "RULE://,DEFAULT",
    "  RULE:   /     / ,  DEFAULT  ",
    "RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,DEFAULT",
]
NAMES = [
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "cn=duke,ou=sme,dc=mycp,dc=com",
    "OU=JavaSoft,O=Sun Microsystems,C=US",
    "CN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=cz",
    "CN=İstanbul ΑΣ,O=ß",
    "",
]


def main(libs: Path) -> None:
    questions = [f"subject {subject.hex()}" for subject in subjects()]
    questions += [f"rules {rules}\t{name}" for rules in RULES for name in NAMES]
    command = ["java", "-cp", f"{libs}/*", str(HERE / "Principals.java")]
    asked = "\n".join(questions) + "\n"
    answers = subprocess.run(
        command, input=asked, capture_output=True, check=True, encoding="utf-8"
    ).stdout.splitlines()
    rows = [f"{question}\t{answer}\n" for question, answer in zip(questions, answers, strict=True)]
    (HERE / "principals.tsv").write_text("".join(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
