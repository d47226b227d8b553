"""Byte budgets default to an eighth of the memory that a control group allows."""

import pytest

from barnabas import Broker
from barnabas.config import broker_config, settings
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.memory import BUDGETS, memory_limit
from barnabas.config.settings import lower_budgets, read_table
from barnabas.stages import serving

MIB = 1 << 20
V1, V2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"


def tree(root, groups, **limits):
    """`limits`: texts of files by path, with dots for slashes."""
    for path, text in {"proc/self/cgroup": groups, **limits}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return memory_limit(root)


@pytest.mark.parametrize(
    "groups, files, limit",
    [
        ("0::/app.slice/b", {f"{V2}/app.slice/b/memory.max": "67108864"}, 64 * MIB),
        # The group above allows less.
        (
            "0::/app.slice/b",
            {f"{V2}/app.slice/b/memory.max": "max", f"{V2}/app.slice/memory.max": "1048576"},
            MIB,
        ),
        # A container whose path is that of the host.
        ("0::/../../docker/abc", {f"{V2}/memory.max": "134217728"}, 128 * MIB),
        (
            "5:cpu:/x\n4:memory,hugetlb:/b",
            {f"{V1}/b/memory.limit_in_bytes": "67108864"},
            64 * MIB,
        ),
        ("4:memory:/", {f"{V1}/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("4:memory:/gone", {f"{V1}/memory.limit_in_bytes": "33554432"}, 32 * MIB),
        ("0::/b", {f"{V2}/b/memory.max": "max"}, None),
        ("0::/b", {}, None),
        ("5:cpu:/b", {f"{V1}/b/memory.limit_in_bytes": "1"}, None),
        ("0::/b", {f"{V2}/b/memory.max": "nonsense"}, None),
    ],
)
def test_the_limit_is_the_smallest_of_the_groups(tmp_path, groups, files, limit):
    assert tree(tmp_path, groups, **files) == limit


def test_a_system_without_control_groups_has_no_limit(tmp_path):
    assert memory_limit(tmp_path) is None


def lowered_table(limit_bytes):
    table = read_table()["broker"]
    return table, lower_budgets(table, limit_bytes)


def test_a_budget_is_an_eighth_of_the_limit_or_its_default():
    table, lowered = lowered_table(64 * MIB)
    assert set(lowered) == set(BUDGETS)
    assert {table[name].default for name in BUDGETS} == {str(8 * MIB)}
    table, lowered = lowered_table(1024 * MIB)
    assert lowered == ("queued.max.request.bytes",)
    assert table["queued.max.request.bytes"].default == str(128 * MIB)
    assert table["socket.request.max.bytes"].default == str(100 * MIB)
    for large in (2 << 30, None):
        assert lowered_table(large)[1] == ()


@pytest.fixture
def small(monkeypatch):
    table, lowered = lowered_table(64 * MIB)
    for name in BUDGETS:
        monkeypatch.setattr(settings.BROKER_SETTINGS[name], "default", table[name].default)
    monkeypatch.setattr(broker_config, "LOWERED", lowered)
    monkeypatch.setattr(broker_config, "MEMORY_LIMIT_BYTES", 64 * MIB)


@pytest.mark.usefixtures("small")
def test_the_notice_names_the_budgets_that_are_not_set():
    config = BrokerConfig({"max.decompressed.bytes": str(32 * MIB)})
    [notice] = [line for line in config.notices if "67,108,864 bytes of memory" in line]
    assert "queued.max.request.bytes=8388608" in notice
    assert "max.decompressed.bytes" not in notice
    assert config.integer("max.decompressed.bytes") == 32 * MIB


@pytest.mark.usefixtures("small")
def test_stock_files_of_kafka_set_a_larger_request():
    """The queue has room for the largest request, when only that is set."""
    config = BrokerConfig({"socket.request.max.bytes": str(100 * MIB)})
    assert config.integer("queued.max.request.bytes") == 100 * MIB
    config = BrokerConfig({"socket.request.max.bytes": str(4 * MIB)})
    assert config.integer("queued.max.request.bytes") == 8 * MIB


def test_converted_answers_have_their_part(tmp_path, monkeypatch):
    def bytes_max():
        with Broker({"log.dirs": str(tmp_path)}) as broker:
            return broker.node.bound.native.fetch.conversions.memory_bytes_max

    assert bytes_max() == 128 * MIB
    monkeypatch.setattr(serving, "MEMORY_LIMIT_BYTES", 64 * MIB)
    assert bytes_max() == 8 * MIB
