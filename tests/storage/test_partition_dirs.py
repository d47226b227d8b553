"""Which names of directories are those of partitions, and which are ignored."""

import pytest

from barnabas.storage.partition_dirs import parse


@pytest.mark.parametrize("number", [0, 7, 2**31 - 1])
def test_a_topic_and_a_number_are_a_partition(number):
    found = parse(f"some-topic.x_1-{number}")
    assert found is not None
    assert (found.topic, found.partition, found.mark) == ("some-topic.x_1", number, None)


@pytest.mark.parametrize(
    "name",
    ["t-2147483648", "t-99999999999", "t-99999999999999", "t-01", "t-+1", "t-", "-1", "..-1"]
    + ["t", "t/u-1", "t u-1", "t-\u0661", "t" * 250 + "-1"],
)
def test_other_names_are_not(name):
    assert parse(name) is None
