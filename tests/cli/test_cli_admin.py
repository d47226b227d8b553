"""Commands for topics and settings, with our broker and with Apache Kafka."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from cli.conftest import Ran, Run, run_command

pytestmark = pytest.mark.takes(seconds=45)

Words = tuple[str, ...]


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


def at_once(barnabas: Run, commands: Sequence[Words]) -> list[tuple[Words, Ran]]:
    """Runs the commands side by side: each asks for a topic for a while, as it may be new."""
    with ThreadPoolExecutor(len(commands)) as threads:
        ran = threads.map(lambda words: barnabas(*words), commands)
        return list(zip(commands, ran, strict=True))


def test_a_topic_that_does_not_exist(barnabas: Run):
    commands = [
        ("topics", "delete", "nosuch"),
        ("topics", "describe", "nosuch"),
        ("consume", "nosuch", "--end"),
        ("offsets", "nosuch"),
        ("configs", "describe", "topic", "nosuch"),
    ]
    for words, got in at_once(barnabas, commands):
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


def test_levels_of_loggers(barnabas: Run):
    """Both brokers have a logger named root."""

    def level() -> str:
        rows = json.loads(barnabas("configs", "describe", "loggers", broker, "--json").text)
        [root] = [row for row in rows if row["name"] == "root"]
        assert (root["source"], root["readOnly"]) == ("logger", False)
        return str(root["value"])

    found = json.loads(barnabas("cluster", "describe", "--json").text)
    broker = str(found["brokers"][0]["broker"])
    before = level()
    words = ("configs", "alter", "loggers", broker, "--add")
    try:
        got = barnabas(*words, "root=FATAL")
        assert got.status == 0 and got.err == f"altered loggers of broker {broker}: root\n"
        assert level() == "FATAL"
    finally:
        assert barnabas(*words, f"root={before}").status == 0
    refused = barnabas(*words, "root=LOUD")
    assert refused.status == 1 and "(INVALID_CONFIG)" in refused.err
    assert level() == before


def test_wrong_options_are_reported():
    for words, part in (
        (("configs", "describe"), "give a KIND"),
        (("configs", "describe", "broker", "one"), "not a broker's id"),
        (("configs", "describe", "topic"), "the topic is missing"),
        (("configs", "describe", "loggers"), "the id of the broker is missing"),
        (("configs", "alter", "loggers", "one", "--add", "root=INFO"), "not a broker's id"),
        (("configs", "alter", "topic", "t"), "nothing to alter"),
        (("configs", "alter", "topic", "t", "--add", "a=1", "--delete", "a"), "given twice"),
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
    assert why["ssl.engine.factory.class"] == "names a Java class"
    topics = json.loads(run_command("configs", "describe", "topic", "--unsupported", "--json").text)
    assert {row["scope"] for row in topics} == {"topic"}


def test_an_internal_topic_is_deleted_only_with_a_word(our_address: str):
    """F6: `topics delete __consumer_offsets` was carried out at once."""
    at = ("-b", our_address)
    assert run_command("groups", "list", *at).status == 0  # creates the coordinator's topic
    internal = "__consumer_offsets"
    run_command("topics", "create", internal, *at)
    run_command("topics", "create", "beside", *at)
    got = run_command("topics", "delete", "beside", internal, *at)
    assert got.status == 1 and f"{internal} is an internal topic" in got.err
    assert "--internal" in got.err and len(got.err.splitlines()) == 1
    there = run_command("topics", "list", "--internal", *at).text
    assert internal in there and "beside" in there, "nothing may be deleted"
    done = run_command("topics", "delete", "beside", internal, "--internal", "--json", *at)
    assert done.status == 0, done.err
    assert [json.loads(line) for line in done.text.splitlines()] == [
        {"topic": "beside", "deleted": True},
        {"topic": internal, "deleted": True},
    ]
    assert internal not in run_command("topics", "list", "--internal", *at).text


def test_the_cluster_lists_its_brokers(barnabas: Run, address: str):
    """F30: no command listed brokers, their listeners and the controller."""
    found = json.loads(barnabas("cluster", "describe", "--json").text)
    assert len(found["clusterId"]) == 22
    [broker] = found["brokers"]
    assert broker["address"] == address and broker["isController"] is True
    assert "PLAINTEXT://" in broker["listeners"]
    shown = barnabas("cluster", "describe")
    assert found["clusterId"] in shown.err
    assert shown.text.splitlines()[1].split()[:2] == [str(broker["broker"]), address]


def test_the_first_node_has_id_1(our_address: str):
    """F30: a broker without settings was 1001, and the examples of --help said broker 0."""
    [broker] = json.loads(run_command("cluster", "describe", "--json", "-b", our_address).text)[
        "brokers"
    ]
    assert broker["broker"] == 1
    assert "broker 1 --all" in run_command("configs", "describe", "--help").text
    got = run_command("configs", "describe", "broker", "1", "-b", our_address)
    assert got.status == 0 and "listeners" in got.text


def test_an_unknown_topic_has_one_wording(barnabas: Run):
    """F33: three wordings."""
    commands = [
        ("topics", "describe", "nosuch"),
        ("topics", "delete", "nosuch"),
        ("topics", "alter", "nosuch", "--partitions", "3"),
        ("topics", "alter", "nosuch", "--config", "retention.ms=5"),
        ("configs", "describe", "topic", "nosuch"),
        ("configs", "alter", "topic", "nosuch", "--add", "retention.ms=5"),
        ("consume", "nosuch", "--end"),
        ("offsets", "nosuch"),
    ]
    for words, got in at_once(barnabas, commands):
        expected = "barnabas: there is no topic nosuch (UNKNOWN_TOPIC_OR_PARTITION). "
        assert got.status == 1 and got.err.startswith(expected), (words, got.err)


def test_an_error_names_its_code_once(barnabas: Run, topic: str):
    """F33: "(INVALID_RECORD) (INVALID_RECORD).", "not found. (GROUP_ID_NOT_FOUND)."."""
    assert barnabas("topics", "alter", topic, "--config", "cleanup.policy=compact").status == 0
    got = barnabas("produce", topic, stdin=b"without a key\n")
    assert got.status == 1 and got.err.count("INVALID_RECORD") == 1, got.err
    got = barnabas("groups", "describe", "nosuch")
    assert got.status == 1 and ". (" not in got.err, got.err
    assert got.err.count("GROUP_ID_NOT_FOUND") == 1


def test_empty_lists_say_so(our_address: str):
    """F41: a bare header."""
    for words, said in (
        (("transactions", "list", "--state", "Ongoing"), "there are no transactional ids"),
        (("transactions", "find-hanging"), "no transaction hangs"),
        (("groups", "list", "--state", "Dead"), "there are no groups"),
    ):
        got = run_command(*words, "-b", our_address)
        assert (got.status, got.out, got.err) == (0, b"", f"{said}\n"), words
