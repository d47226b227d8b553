"""Writes which listeners between brokers Kafka starts with into kafka_starts.tsv beside this file.

    python tests/config/record_starts.py        asks KafkaConfig of 4.3.1, and of 3.9.2 on ZooKeeper

A line has a case, the line of Kafka, and "starts" or Kafka's reason for the refusal.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from compat.java.driver import compiled  # noqa: E402
from compat.support import rival  # noqa: E402

FILE = HERE / "kafka_starts.tsv"
NAME, PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"
LISTENERS, ADVERTISED = "listeners", "advertised.listeners"
MAP = "listener.security.protocol.map"
MECHANISM, MECHANISMS = "sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms"
OWN = "A:PLAINTEXT,B:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"
A, B = "A://127.0.0.1:9192", "B://127.0.0.1:9193"
PLAIN = "PLAINTEXT://127.0.0.1:9092"
CONTROLLER = "CONTROLLER://127.0.0.1:9093"
NAMES, ROLES = "controller.listener.names", "process.roles"
BOTH_ROLES = {ROLES: "broker,controller", NAMES: "CONTROLLER"}

# What differs from a broker with the listener PLAINTEXT. A KRaft case has process.roles.
CASES: dict[str, dict[str, str]] = {
    "nothing is set": {},
    "a name": {LISTENERS: A, NAME: "A"},
    "a name in small letters": {LISTENERS: A, NAME: "a"},
    "a protocol": {LISTENERS: f"{A},{PLAIN}", PROTOCOL: "PLAINTEXT"},
    "both": {NAME: "PLAINTEXT", PROTOCOL: "PLAINTEXT"},
    "both, an empty name": {NAME: "", PROTOCOL: "PLAINTEXT"},
    "an empty name": {NAME: ""},
    "a name without a protocol": {NAME: "X"},
    "a name without a listener": {NAME: "A"},
    "a name that is not advertised": {LISTENERS: f"{A},{PLAIN}", ADVERTISED: PLAIN, NAME: "A"},
    "a listener that is advertised alone": {LISTENERS: f"{A},{PLAIN}", ADVERTISED: A, NAME: "A"},
    "no listener of the default protocol's name": {LISTENERS: A},
    "its listener is not advertised": {LISTENERS: f"{A},{PLAIN}", ADVERTISED: A},
    "a protocol without a listener": {PROTOCOL: "SSL"},
    "a protocol whose listener has another name": {LISTENERS: A, PROTOCOL: "PLAINTEXT"},
    "a protocol that there is not": {PROTOCOL: "TLS"},
    "a protocol in small letters": {PROTOCOL: "plaintext"},
    "a protocol whose name means another": {MAP: "SSL:PLAINTEXT", LISTENERS: "SSL://127.0.0.1:9092",
                                            PROTOCOL: "SSL"},
    "a mechanism that its listener has": {LISTENERS: B, NAME: "B", MECHANISM: "PLAIN",
                                          MECHANISMS: "PLAIN"},
    "a mechanism that its listener lacks": {LISTENERS: B, NAME: "B", MECHANISM: "SCRAM-SHA-256",
                                            MECHANISMS: "PLAIN"},
    "a listener of the controller": {NAME: "CONTROLLER"} | BOTH_ROLES,
    "a controller without a listener": {ROLES: "broker,controller", NAMES: "OTHER"},
    "a controller's listener at a broker": {ROLES: "broker", LISTENERS: f"{PLAIN},{CONTROLLER}",
                                            NAMES: "CONTROLLER"},
    "a controller's listener elsewhere": {ROLES: "broker", LISTENERS: PLAIN, NAMES: "CONTROLLER"},
    "no listener but the controller's": {LISTENERS: CONTROLLER} | BOTH_ROLES,
    "KRaft": dict(BOTH_ROLES),
    "names of a controller on ZooKeeper": {LISTENERS: f"{PLAIN},{CONTROLLER}",
                                           NAMES: "CONTROLLER"},
}  # fmt: skip
ZOOKEEPER, KRAFT = "3.9.2", "4.3.1"


def settings_of(case: str, version: str) -> dict[str, str] | None:
    """The settings of a case; None where a line of Kafka does not have it."""
    given = CASES[case]
    on_kraft = version == KRAFT
    if (ROLES in given and not on_kraft) or (case.endswith("on ZooKeeper") and on_kraft):
        return None
    made = {"node.id": "1", LISTENERS: PLAIN, MAP: OWN}
    if not on_kraft:
        made[MAP] += ",CONTROLLER:PLAINTEXT"
        return made | {"zookeeper.connect": "127.0.0.1:1"} | given
    voters = "controller.quorum.voters"
    made |= {voters: "1@127.0.0.1:9093"} | BOTH_ROLES | given
    if made[ROLES] == "broker":
        made[voters] = "2@127.0.0.1:9093"
    elif CONTROLLER not in made[LISTENERS]:
        made[LISTENERS] += f",{CONTROLLER}"
    made[MAP] += ",CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT"
    return made


def recorded() -> dict[tuple[str, str], str]:
    """Case and line of Kafka -> "starts", or why not."""
    rows = [line.split("\t") for line in FILE.read_text().splitlines()]
    return {(case, version): answer for case, version, answer in rows}


def main() -> None:
    lines = []
    for version in (ZOOKEEPER, KRAFT):
        asked = {case: made for case in CASES if (made := settings_of(case, version))}
        classes = compiled(version, HERE / "KafkaStarts.java")
        *start, libs = rival.java(version, classes / "starts.log", heap=("-Xmx128M",))
        given = "".join(
            "\t".join(f"{name}={value}" for name, value in made.items()) + "\n"
            for made in asked.values()
        )
        ran = subprocess.run(
            [*start, f"{classes}:{libs}", "KafkaStarts"],
            input=given, capture_output=True, text=True, check=True,
        )  # fmt: skip
        answers = [row[2:] for row in ran.stdout.splitlines() if row.startswith("= ")]
        lines += [
            f"{case}\t{version}\t{answer}\n" for case, answer in zip(asked, answers, strict=True)
        ]
    FILE.write_text("".join(lines))


if __name__ == "__main__":
    main()
