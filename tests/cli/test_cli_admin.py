"""Topics and settings by command, against ours and Apache Kafka."""

import json

from cli.conftest import Run, run_command


def listed(barnabas: Run) -> dict[str, int]:
    rows = json.loads(barnabas("topics", "list", "--json").text)
    return {row["topic"]: row["partitions"] for row in rows}


def test_the_life_of_a_topic(barnabas: Run, topic: str):
    name = f"{topic}-life"
    made = barnabas(
        "topics", "create", name, "--partitions", "2", "--config", "retention.ms=3600000"
    )
    assert (made.status, made.err) == (0, f"created topic {name}\n")
    assert listed(barnabas)[name] == 2
    shown = json.loads(barnabas("topics", "describe", name, "--json").text)[0]
    assert shown["configs"]["retention.ms"] == "3600000"
    assert [(p["partition"], p["earliest"], p["latest"]) for p in shown["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    grown = barnabas(
        "topics", "alter", name, "--partitions", "4", "--delete-config", "retention.ms"
    )
    assert grown.status == 0, grown.err
    assert listed(barnabas)[name] == 4
    shown = json.loads(barnabas("topics", "describe", name, "--json").text)[0]
    assert "retention.ms" not in shown["configs"]
    assert barnabas("topics", "delete", name).status == 0
    assert name not in listed(barnabas)


def test_a_topic_that_exists(barnabas: Run, topic: str):
    again = barnabas("topics", "create", topic)
    assert again.status == 1 and "TOPIC_ALREADY_EXISTS" in again.err
    assert barnabas("topics", "create", topic, "--if-not-exists").status == 0


def test_a_topic_that_does_not_exist(barnabas: Run):
    for words in (
        ("topics", "delete", "nosuch"),
        ("topics", "describe", "nosuch"),
        ("consume", "nosuch", "--end"),
        ("offsets", "nosuch"),
        ("configs", "describe", "topic", "nosuch"),
    ):
        got = barnabas(*words)
        assert got.status == 1, words
        assert "UNKNOWN_TOPIC_OR_PARTITION" in got.err and len(got.err.splitlines()) == 1
    assert barnabas("topics", "delete", "nosuch", "--if-exists").status == 0


def test_the_number_of_partitions_does_not_shrink(barnabas: Run, topic: str):
    got = barnabas("topics", "alter", topic, "--partitions", "1")
    assert got.status == 1 and "INVALID_PARTITIONS" in got.err


def test_settings_of_a_topic(barnabas: Run, topic: str):
    def shown() -> dict[str, str]:
        rows = json.loads(barnabas("configs", "describe", "topic", topic, "--json").text)
        return {row["name"]: row["value"] for row in rows if row["source"] == "topic"}

    assert shown() == {}
    words = ("configs", "alter", "topic", topic)
    set_two = barnabas(*words, "--add", "retention.ms=1000", "--append", "cleanup.policy=compact")
    assert set_two.status == 0, set_two.err
    assert shown() == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
    assert barnabas(*words, "--add", "retention.ms=2000", "--dry-run").status == 0
    assert shown()["retention.ms"] == "1000"
    back = barnabas(*words, "--subtract", "cleanup.policy=delete", "--delete", "retention.ms")
    assert back.status == 0, back.err
    assert shown() == {"cleanup.policy": "compact"}
    bad = barnabas(*words, "--add", "retention.ms=soon")
    assert bad.status == 1 and "INVALID_CONFIG" in bad.err


def test_every_setting_is_shown_when_asked_for(barnabas: Run, topic: str):
    got = barnabas("configs", "describe", "topic", topic, "--all")
    assert got.text.splitlines()[0].split() == ["name", "value", "source", "change"]
    assert any(line.split()[0] == "segment.bytes" for line in got.text.splitlines())


def test_settings_of_a_broker(barnabas: Run):
    got = barnabas("configs", "describe", "default", "--json")
    assert got.status == 0, got.err
    assert barnabas("configs", "alter", "default", "--add", "log.cleaner.threads=2").status == 0
    rows = json.loads(barnabas("configs", "describe", "default", "--json").text)
    assert {"log.cleaner.threads": "2"}.items() <= {r["name"]: r["value"] for r in rows}.items()
    assert barnabas("configs", "alter", "default", "--delete", "log.cleaner.threads").status == 0


def test_what_is_said_wrongly_is_told():
    for words, part in (
        (("configs", "describe"), "say whose settings"),
        (("configs", "describe", "broker", "one"), "not a broker's id"),
        (("configs", "describe", "topic"), "name the topic"),
        (("configs", "alter", "topic", "t"), "nothing to alter"),
        (("configs", "alter", "topic", "t", "--add", "a=1", "--delete", "a"), "named twice"),
        (("topics", "list", "-b", "x:y"), "HOST:PORT"),
    ):
        got = run_command(*words)
        assert got.status == 1 and part in got.err, words
        assert len(got.err.splitlines()) == 1


def test_settings_without_effect_are_listed_without_a_broker():
    rows = json.loads(run_command("configs", "describe", "--unsupported", "--json").text)
    names = {(row["scope"], row["name"]) for row in rows}
    assert ("broker", "background.threads") in names
    why = {row["name"]: row["why"] for row in rows}
    assert "thread of its own" in why["background.threads"]
    assert why["ssl.keystore.location"] == "not built yet"
    topics = json.loads(run_command("configs", "describe", "topic", "--unsupported", "--json").text)
    assert {row["scope"] for row in topics} == {"topic"}
