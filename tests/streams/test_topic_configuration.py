"""How many partitions the internal topics of a topology get, and what does not fit."""

import pytest
from oracle.streams_rig import changelog, subtopology, topology

from barnabas.coordinator.streams.topic_configuration import (
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    configured,
)
from barnabas.coordinator.streams.topology import Copartition
from barnabas.errors import StreamsInvalidTopology


def configure(of, **topics):
    """`topics`: numbers of partitions."""
    return configured(of, {name.replace("_", "-"): n for name, n in topics.items()}.get)


def counts(found):
    return {name: topic.partition_count for name, topic in found.missing.items()}


def test_a_changelog_has_a_partition_for_each_task():
    of = topology(subtopology("0", ("a", "b"), changelogs=("log",)))
    found = configure(of, a=3, b=5)
    assert counts(found) == {"log": 5} and found.subtopologies["0"].task_count == 5
    assert found.problem == (MISSING_INTERNAL_TOPICS, "Internal topics are missing: log")
    assert configure(of, a=3, b=5, log=5).is_ready


def test_a_repartition_topic_gets_the_count_of_its_writers_sources():
    middle, last = changelog("middle"), changelog("last")
    of = topology(
        subtopology("0", ("a", "b"), sinks=("middle",)),
        subtopology("1", (), sinks=("last",), repartition=(middle,)),
        subtopology("2", (), repartition=(last,), changelogs=("log",)),
    )
    found = configure(of, a=3, b=4)
    assert counts(found) == {"middle": 4, "last": 4, "log": 4}


def test_a_given_count_of_a_repartition_topic_stays():
    fixed = changelog("middle")._replace(partition_count=7)
    of = topology(
        subtopology("0", ("a",), sinks=("middle",)), subtopology("1", (), repartition=(fixed,))
    )
    assert counts(configure(of, a=3)) == {"middle": 7}


def copartitioned(*topics, sources=("a",), partition_count=0):
    rows = tuple(changelog(name)._replace(partition_count=partition_count) for name in topics)
    group = Copartition(tuple(range(len(sources))), (), tuple(range(len(topics))))
    return topology(
        subtopology("0", ("b",), sinks=topics),
        subtopology("1", sources, repartition=rows, copartitions=(group,)),
    )


def test_copartitioned_topics_get_the_same_count():
    assert counts(configure(copartitioned("r"), a=3, b=9)) == {"r": 3}
    assert counts(configure(copartitioned("r", "s", sources=()), b=9)) == {"r": 9, "s": 9}
    fixed = copartitioned("r", sources=(), partition_count=2)
    assert counts(configure(fixed, b=9)) == {"r": 2}


@pytest.mark.parametrize(
    "of, topics",
    [
        (copartitioned("r", partition_count=2), {"a": 3, "b": 9}),
        (copartitioned("r", sources=("a", "c")), {"a": 3, "b": 9, "c": 4}),
        (topology(subtopology("0", ("a",), changelogs=("log",))), {"a": 3, "log": 4}),
    ],
)
def test_topics_with_other_counts_do_not_fit(of, topics):
    found = configure(of, **topics)
    assert found.problem.code == INCORRECTLY_PARTITIONED_TOPICS and not found.missing


def test_missing_sources_are_named():
    of = topology(subtopology("0", ("e", "d", "c", "b", "a")))
    found = configure(of, b=1)
    assert found.problem == (
        MISSING_SOURCE_TOPICS,
        "Source topics a, c, d and 1 additional topics are missing.",
    )


def test_topologies_that_no_topics_fit():
    loop = subtopology("0", (), sinks=("r",), repartition=(changelog("r"),))
    with pytest.raises(StreamsInvalidTopology, match="loops"):
        configure(topology(loop))
    with pytest.raises(StreamsInvalidTopology, match="never used as a sink"):
        configure(topology(subtopology("0", ("a",), repartition=(changelog("r"),))), a=1)
