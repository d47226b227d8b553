"""Kafka's order of precedence: its own class was asked about every combination of the 8 levels
(kafka_limits.tsv, by KafkaLimits.java)."""

from pathlib import Path

from barnabas.metadata.znodes import DEFAULT_ENTITY
from barnabas.quotas.entities import Entity
from barnabas.quotas.limits import Limits

HERE = Path(__file__).resolve().parent
# In the order of precedence; the quota of a level is 10 times its number.
LEVELS = [
    Entity("u", "c"),
    Entity("u", DEFAULT_ENTITY),
    Entity("u"),
    Entity(DEFAULT_ENTITY, "c"),
    Entity(DEFAULT_ENTITY, DEFAULT_ENTITY),
    Entity(DEFAULT_ENTITY),
    Entity(client_id="c"),
    Entity(client_id=DEFAULT_ENTITY),
]


def limit_and_tags(limits, user, client_id):
    tags = limits.tags(user, client_id)
    limit = limits.limit(tags)
    return f"{'-' if limit is None else round(limit)}\t{tags.user}\t{tags.client_id}"


def test_every_combination_of_levels_is_kafkas():
    lines = (HERE / "kafka_limits.tsv").read_text().splitlines()
    assert len(lines) == 255 * 6
    for line in lines:
        mask, user, client_id, expected = line.split("\t", 3)
        chosen = {entity: 10.0 * (i + 1) for i, entity in enumerate(LEVELS) if int(mask) >> i & 1}
        assert limit_and_tags(Limits(chosen), user, client_id) == expected, line


def test_names_are_compared_as_they_are_stored():
    limits = Limits({Entity("a%2Fb", "%3Cdefault%3E"): 1.0, Entity("a%2Fb"): 2.0})
    assert limits.limit(limits.tags("a/b", "<default>")) == 1
    assert limits.limit(limits.tags("a/b", "other")) == 2
    assert limits.limit(limits.tags("a%2Fb", "<default>")) is None
