"""`barnabas start` logs how many partitions the machine allows, and raises the limits that it may
raise."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas import Broker
from barnabas.cli import limits
from barnabas.cli.limits import Limits
from barnabas.client import Cluster, NewTopic, create_topics
from barnabas.client.load import Shape, Until, produce


def test_the_scarcer_of_the_two_decides():
    assert Limits(20_000, 65_530).partitions == (20_000 - 128 - 1000) // 3
    assert Limits(1_000_000, 65_530).partitions == (65_530 - 1024 - 2000) // 2
    assert Limits(None, None).partitions is None
    assert Limits(512, 65_530).partitions == 0
    assert "6,290 partitions" in Limits(20_000, 65_530).text()


def test_the_soft_limit_is_raised_to_the_hard_one():
    code = (
        "import resource; from barnabas.cli.limits import raise_and_read;"
        "found = raise_and_read();"
        "print(found.descriptors, *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (300, 900)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["900", "900", "900"]


@pytest.mark.parametrize("count", [40])
def test_a_written_partition_takes_no_more_than_is_reckoned(tmp_path: Path, count: int):
    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text().count("\n")
        return len(os.listdir("/proc/self/fd")), maps

    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(settings) as broker, Cluster(broker.bootstrap_servers) as cluster:
        create_topics(cluster, [NewTopic("one"), NewTopic("many", partition_count=count)])
        produce(cluster, "one", Shape(), Until(records=10), lambda _: None)
        descriptors, maps = held()
        produce(cluster, "many", Shape(batch_records=1), Until(records=2 * count), lambda _: None)
        more_descriptors, more_maps = held()
    # Logs have their descriptors before the first write.
    assert more_descriptors - descriptors <= limits.DESCRIPTORS_A_PARTITION * count
    assert more_descriptors - descriptors >= count
    assert count <= more_maps - maps <= limits.MAPS_A_PARTITION * count + 20
