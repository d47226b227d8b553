"""What Apache Kafka 4.3.1 was asked about quotas; kafka_answers.json has its answers.

python tests/quotas/scenario.py     asks it again (starts Kafka: half a minute)
"""

import json
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from compat.support import Broker, Wire  # noqa: E402
from quotas.asking import DEFAULT, EXACT, SPECIFIED, alter, described  # noqa: E402

FILE = HERE / "kafka_answers.json"
DEADLINE_S = 30
RATE = {"producer_byte_rate": 1024}
CONNECTIONS = {"connection_creation_rate": 5}
LAST = ({"user": "last"}, RATE)

CHANGES = {
    "a user": [({"user": "alice"}, RATE)],
    "all keys": [
        (
            {"user": "all"},
            {
                "producer_byte_rate": 1,
                "consumer_byte_rate": 2**40,
                "request_percentage": 12.5,
                "controller_mutation_rate": 0.25,
            },
        )
    ],
    "a pair": [({"user": "alice", "client-id": "c"}, RATE)],
    "a default pair": [({"user": None, "client-id": None}, RATE)],
    "default user": [({"user": None}, RATE)],
    "default client": [({"client-id": None}, {"consumer_byte_rate": 7})],
    "odd names": [({"user": "a/b c,=é", "client-id": "<default>"}, RATE)],
    "an address": [({"ip": "127.0.0.1"}, CONNECTIONS)],
    "default address": [({"ip": None}, CONNECTIONS)],
    "no name of a host": [({"ip": "no such host!"}, CONNECTIONS)],
    "an address with a user": [({"ip": "127.0.0.1", "user": "alice"}, CONNECTIONS)],
    "no entity": [({}, RATE)],
    "empty name": [({"user": ""}, RATE)],
    "unknown type": [({"group": "g"}, RATE)],
    "unknown key": [({"user": "x"}, {"nonsense": 1})],
    "an unknown key removed": [({"user": "x"}, {"nonsense": None})],
    "a key of addresses": [({"user": "x"}, CONNECTIONS)],
    "a key of clients": [({"ip": "127.0.0.1"}, RATE)],
    "zero": [({"user": "x"}, {"producer_byte_rate": 0})],
    "below zero": [({"user": "x"}, {"request_percentage": -1})],
    "a fraction": [({"user": "x"}, {"producer_byte_rate": 1.5})],
    "too large": [({"ip": "127.0.0.1"}, {"connection_creation_rate": 2**31})],
    "far too large": [({"user": "x"}, {"producer_byte_rate": 1e30})],
    "the second key is wrong": [({"user": "x"}, {"producer_byte_rate": 1, "nonsense": 1})],
    "a key twice": [({"user": "x"}, [("producer_byte_rate", 1), ("producer_byte_rate", 2)])],
    "an entity twice": [({"user": "twice"}, RATE), ({"user": "twice"}, {"request_percentage": 1})],
    "one of two is wrong": [({"user": "right"}, RATE), ({"user": ""}, RATE)],
    "removed, though it is not there": [({"user": "nobody"}, {"producer_byte_rate": None})],
    "removed": [({"user": "all"}, {"request_percentage": None})],
    "no keys": [({"user": "nothing"}, {})],
}
QUESTIONS = {
    "everything": [],
    "any user": [("user", SPECIFIED, None)],
    "a user": [("user", EXACT, "alice")],
    "the default user": [("user", DEFAULT, None)],
    "a pair": [("user", EXACT, "alice"), ("client-id", EXACT, "c")],
    "any client": [("client-id", SPECIFIED, None)],
    "the default client": [("client-id", DEFAULT, None)],
    "any address": [("ip", SPECIFIED, None)],
    "a user that is not there": [("user", EXACT, "nobody")],
    "odd names": [("user", EXACT, "a/b c,=é")],
    "<default> as a name": [("client-id", EXACT, "<default>")],
    "a type twice": [("user", EXACT, "a"), ("user", DEFAULT, None)],
    "an empty type": [("", EXACT, "a")],
    "an unknown type": [("group", EXACT, "a")],
    "an address and a user": [("ip", SPECIFIED, None), ("user", SPECIFIED, None)],
    "exact without a name": [("user", EXACT, None)],
    "default with a name": [("user", DEFAULT, "a")],
    "any with a name": [("user", SPECIFIED, "a")],
    "an unknown way to match": [("user", 9, "a")],
}


def answers(wire, version=1):
    """The answers by question, in a form that JSON keeps."""
    found = {}
    for name, entries in CHANGES.items():
        found[f"validate: {name}"] = _shown(alter(wire, *entries, validate_only=True))
    for name, entries in CHANGES.items():
        found[f"alter: {name}"] = _shown(alter(wire, *entries, version=version))
    alter(wire, LAST)
    deadline = time.monotonic() + DEADLINE_S
    while not described(wire, ("user", EXACT, "last")):  # Kafka tells its brokers a little later
        assert time.monotonic() < deadline
        time.sleep(0.02)
    alter(wire, (LAST[0], {"producer_byte_rate": None}))
    while described(wire, ("user", EXACT, "last")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for name, components in QUESTIONS.items():
        for strict in (False, True):
            told = described(wire, *components, strict=strict, version=version)
            if isinstance(told, dict):
                told = sorted(([*names, told[names]] for names in told), key=str)
            found[f"describe: {name}{', strict' if strict else ''}"] = _plain(told)
    return found


def _shown(rows):
    return _plain(
        sorted(([sorted(names.items(), key=str), *rest] for names, *rest in rows), key=str)
    )


def _plain(value):
    return json.loads(json.dumps(value))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker("kafka:4.3.1", Path(folder))
        try:
            with Wire(broker.address) as asked:
                text = json.dumps(answers(asked), indent=1, ensure_ascii=False, sort_keys=True)
                FILE.write_text(text + "\n")
        finally:
            broker.stop()
