"""Our responses equal those of Apache Kafka, for every key and version that is served.

Kafka's responses are recorded (record.py), so that Java is only needed to check the recording.
The short form asks in as few versions as give every distinct answer once; the long form in each.
Kafka itself, which answers as ever, is asked a fifth of that in the short form.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from compat.answers import record
from compat.answers.asking import served
from compat.answers.scenarios import SCENARIOS, answers_to
from compat.support import Broker, cannot_run
from long_form import pick

pytestmark = pytest.mark.takes(seconds=60)

RECORDED = record.all_recorded()
PAIRS = sorted(RECORDED)
ASKED = pick(short=record.covering(RECORDED), long=PAIRS)
ASKED_OF_KAFKA = pick(short=ASKED[::5], long=ASKED)
FEATURES = ("supportedFeatures", "finalizedFeatures")


@pytest.fixture(scope="session", params=pick(short=record.KAFKAS[:1], long=record.KAFKAS))
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    reason = cannot_run(request.param)
    if reason:
        pytest.skip(reason)
    running = Broker(request.param, tmp_path_factory.mktemp("kafka"))
    yield running
    running.stop()


def differences(key: int, version: int, told: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    found = []
    for case in sorted(told.keys() | wanted.keys()):
        allowed = {(key, v, c) for v in (version, None) for c in (case, None)}
        if allowed & record.ALLOWED.keys():
            continue
        found += list(differing(case, told.get(case), wanted.get(case)))
    return found


def differing(path: str, told: Any, wanted: Any) -> Iterator[str]:
    """The innermost places where two responses differ."""
    if isinstance(told, dict) and isinstance(wanted, dict):
        for name in sorted(told.keys() | wanted.keys()):
            compare = differing_features if name in FEATURES and told.get(name) else differing
            yield from compare(f"{path} / {name}", told.get(name), wanted.get(name))
    elif are_settings(told) and are_settings(wanted):
        yield from differing_settings(path, told, wanted)
    elif isinstance(told, list) and isinstance(wanted, list) and len(told) == len(wanted):
        for index, (one, other) in enumerate(zip(told, wanted, strict=True)):
            yield from differing(f"{path}[{index}]", one, other)
    elif told != wanted:
        yield f"{path}: {told!r}, and Kafka says {wanted!r}"


def are_settings(rows: Any) -> bool:
    """Whether a list holds configuration entries (CreateTopics, DescribeConfigs)."""
    if not (isinstance(rows, list) and rows and isinstance(rows[0], dict)):
        return False
    return "configSource" in rows[0]


def differing_settings(path: str, told: list, wanted: list) -> Iterator[str]:
    """By name."""
    ours, theirs = ({row["name"]: row for row in rows} for rows in (told, wanted))
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours:
            yield f"{path} / {name}: missing"
        elif name not in theirs:
            yield f"{path} / {name}: Kafka has none of this name"
        else:
            yield from differing(f"{path} / {name}", ours[name], theirs[name])


def differing_features(path: str, told: list, wanted: list) -> Iterator[str]:
    """Ours are a subset of Kafka's, with no level above Kafka's."""
    theirs = {row["name"]: row for row in wanted or ()}
    for row in told:
        name = row["name"]
        if name not in theirs:
            yield f"{path} / {name}: Kafka has none of this name"
            continue
        for key in row.keys() - {"name"}:
            level, kafkas = row[key], theirs[name][key]
            if (level < kafkas) if key == "minVersion" else (level > kafkas):
                yield f"{path} / {name} / {key}: {level}, and Kafka says {kafkas}"


@pytest.mark.parametrize("key, version", ASKED)
def test_answers_as_kafka(broker: Broker, key: int, version: int) -> None:
    """Asks the broker under test, in each version that it announces."""
    if version not in served(broker.address).get(key, ()):
        return  # not announced; test_nothing_served_is_left_out checks the other direction
    wanted = RECORDED[key, version][1]
    assert differences(key, version, answers_to(broker.address, key, version), wanted) == []


def test_nothing_served_is_left_out(broker: Broker) -> None:
    """Each key has scenarios, and each version that is advertised has recorded answers."""
    unrecorded = [pair for pair in record.pairs_of(broker.address) if pair not in RECORDED]
    assert unrecorded == []
    if broker.is_ours:
        assert sorted(served(broker.address).keys() - SCENARIOS.keys()) == []


def distinct(pairs: list[tuple[int, int]]) -> set[tuple[int, str, str]]:
    """Key, case and answer of each recorded answer in these versions."""
    rows = [(key, *row) for key, version in pairs for row in RECORDED[key, version][1].items()]
    return {(key, case, json.dumps(answer, sort_keys=True)) for key, case, answer in rows}


def test_each_distinct_recorded_answer_is_asked_for() -> None:
    assert distinct(record.covering(RECORDED)) == distinct(PAIRS)


def test_a_recorded_file_is_written_as_it_was_read() -> None:
    assert record.lines_of(RECORDED) == record.FILE.read_text().splitlines()


def test_a_difference_is_seen() -> None:
    """The comparison reports a changed number, a missing field and a missing case."""
    wanted = RECORDED[3, 9][1]
    case = "by name"
    changed = {**wanted, case: {**wanted[case], "throttleTimeMs": 7}}
    assert differences(3, 9, changed, wanted) == [
        f"{case} / throttleTimeMs: 7, and Kafka says {wanted[case]['throttleTimeMs']}"
    ]
    lacking = {name: value for name, value in wanted[case].items() if name != "topics"}
    assert len(differences(3, 9, {**wanted, case: lacking}, wanted)) == 1
    assert len(differences(3, 9, {}, wanted)) == len(wanted)


def test_a_feature_that_kafka_lacks_is_seen() -> None:
    """A feature with another name or level is reported; a missing feature is not."""
    wanted = RECORDED[18, 4][1]
    plain = wanted["plain"]
    [own] = [row for row in plain["supportedFeatures"] if row["name"] == "metadata.version"]
    for change, count in (
        ({}, 0),
        ({"name": "no.version"}, 1),
        ({"maxVersion": 99}, 1),
        ({"minVersion": 0}, 1),
    ):
        told = {**wanted, "plain": {**plain, "supportedFeatures": [own | change]}}
        assert len(differences(18, 4, told, wanted)) == count


def test_every_allowed_difference_names_a_recorded_answer() -> None:
    for key, version, case in record.ALLOWED:
        rows = [
            cases for (k, v), (_, cases) in RECORDED.items() if k == key and version in (v, None)
        ]
        assert rows and (case is None or any(case in cases for cases in rows))


def test_the_page_is_of_these_answers() -> None:
    """docs/answers.md is the output of record.py and has no empty cell."""
    text = record.PAGE.read_text()
    assert text == record.page()
    for key, version in PAIRS:
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {key} |")]
        assert f" {version}: " in row


@pytest.mark.java
def test_kafka_still_says_so(kafka: Broker) -> None:
    """Asks this Kafka again and compares with its recorded answers."""
    now = {}
    for key, version in ASKED_OF_KAFKA:
        kind, wanted = RECORDED[key, version]
        if kind != kafka.kind:
            continue
        told = answers_to(kafka.address, key, version)
        found = differences(key, version, told, wanted)
        if found:
            now[key, version] = found
    assert now == {}
