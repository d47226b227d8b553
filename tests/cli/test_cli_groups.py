"""`barnabas groups` with our broker and with Apache Kafka."""

import json
import time
import uuid

import pytest
from cli.conftest import Run
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as At
from share.share_member import ShareMember, configure
from streams.streams_wire import StreamsMember

pytestmark = pytest.mark.takes(seconds=20)

PATIENCE_S = 40


@pytest.fixture
def group():
    return f"g-{uuid.uuid4().hex[:8]}"


def consumer(address, group):
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def committed(address, group, topic, count):
    found = consumer(address, group)
    rows = found.committed([At(topic, index) for index in range(count)], timeout=20)
    found.close()
    return [row.offset for row in rows]


@pytest.fixture
def filled(barnabas: Run, topic: str):
    """Three records in each of two partitions."""
    name = f"{topic}-{uuid.uuid4().hex[:6]}"
    assert barnabas("topics", "create", name, "--partitions", "2").status == 0
    for index in range(2):
        lines = b"".join(b"%d\n" % at for at in range(3))
        words = ("produce", name, "--partition", str(index))
        assert barnabas(*words, stdin=lines).status == 0
    return name


def test_a_group_with_a_member(barnabas: Run, address: str, filled: str, group: str):
    reader = consumer(address, group)
    reader.subscribe([filled])
    seen, deadline = 0, time.monotonic() + PATIENCE_S
    while seen < 6 and time.monotonic() < deadline:
        seen += reader.poll(0.5) is not None
    assert seen == 6
    reader.commit(offsets=[At(filled, 0, 3), At(filled, 1, 1)], asynchronous=False)
    rows = json.loads(barnabas("groups", "list", "--json").text)
    assert {"group": group, "state": "Stable", "type": "classic", "protocol": "consumer"} in [
        row | {"type": row["type"].lower()} for row in rows
    ]
    (told,) = json.loads(barnabas("groups", "describe", group, "--json").text)
    assert told["state"] == "Stable" and told["assignor"] == "range"
    (member,) = told["members"]
    assert member["client"] == "reader" and member["assignment"] == {filled: [0, 1]}
    assert [(r["partition"], r["committed"], r["end"], r["lag"]) for r in told["partitions"]] == [
        (0, 3, 3, 0),
        (1, 1, 3, 2),
    ]
    assert {r["member"] for r in told["partitions"]} == {member["member"]}
    shown = barnabas("groups", "describe", group)
    assert f"{group}: Stable, 1 member\n" in shown.err and filled in shown.text
    refused = barnabas("groups", "reset", group, "--topic", filled, "--to", "earliest")
    assert refused.status == 1 and "stop them first" in refused.err
    refused = barnabas("groups", "delete", group)
    assert refused.status == 1 and "NON_EMPTY_GROUP" in refused.err
    reader.close()
    assert barnabas("groups", "delete", group).status == 0
    gone = barnabas("groups", "describe", group)
    assert gone.status == 1 and "GROUP_ID_NOT_FOUND" in gone.err


def test_resets(barnabas: Run, address: str, filled: str, group: str, tmp_path):
    def reset(*words):
        done = barnabas("groups", "reset", group, *words, "--json")
        assert done.status == 0, done.err
        return [row["to"] for row in json.loads(done.text)]

    every = ("--topic", filled)
    assert reset(*every, "--to", "latest", "--dry-run") == [3, 3]
    assert committed(address, group, filled, 2) == [-1001, -1001]
    assert reset(*every, "--to", "latest") == [3, 3]
    assert committed(address, group, filled, 2) == [3, 3]
    assert reset(f"--topic={filled}:1", "--to", "earliest") == [0]
    assert reset("--all-topics", "--shift", "-1") == [2, 0]
    assert reset("--all-topics", "--shift", "99") == [3, 3]
    assert reset(*every, "--to", "1") == [1, 1]
    assert reset(*every, "--to-time", "0") == [0, 0]
    assert reset(*every, "--to-time", "2100-01-01T00:00:00Z") == [3, 3]
    file = tmp_path / "offsets.csv"
    file.write_text(f"{filled},0,2\n\n{filled},1,1\n")
    assert reset("--file", str(file)) == [2, 1]
    assert committed(address, group, filled, 2) == [2, 1]


def test_what_is_refused(barnabas: Run, filled: str, group: str, tmp_path):
    for words, said in (
        (("reset", group, "--to", "earliest"), "--topic TOPIC, or --all-topics"),
        (("reset", group, "--topic", "nosuch", "--to", "earliest"), "UNKNOWN_TOPIC"),
        (("reset", group, "--topic", f"{filled}:7", "--to", "0"), "no partition 7"),
        (("reset", group, "--all-topics", "--to", "latest"), "has no committed offsets to reset"),
        (("delete", group), "GROUP_ID_NOT_FOUND"),
        (("describe", group), "GROUP_ID_NOT_FOUND"),
    ):
        got = barnabas("groups", *words)
        assert got.status == 1 and said in got.err, (words, got)
        assert len(got.err.splitlines()) == 1
    bad = tmp_path / "bad.csv"
    bad.write_text(f"{filled},0\n")
    got = barnabas("groups", "reset", group, "--file", str(bad))
    assert got.status == 1 and "line 1 is not TOPIC,PARTITION,OFFSET" in got.err
    wrong = barnabas("groups", "reset", group, "--topic", filled, "--to", "somewhere")
    assert wrong.status == 2 and "neither earliest, latest nor an offset" in wrong.err


def test_a_streams_group(barnabas: Run, address: str, filled: str, group: str):
    """Its members own the partitions that their tasks read."""
    assert configure(address, group, streams_initial_rebalance_delay_ms="0") == 0
    member = StreamsMember(address, group, filled, version=0).join()
    assert member.commit(filled, {0: 1}) == 0
    (told,) = json.loads(barnabas("groups", "describe", group, "--json").text)
    assert (told["type"], told["state"]) == ("streams", "Stable")
    assert told["assignor"] in ("sticky", "")  # Kafka 4.3 does not name it
    assert (told["epoch"], told["members"][0]["epoch"]) == (member.epoch, member.epoch)
    assert told["members"][0]["assignment"] == {filled: member.active}
    first = told["partitions"][0]
    assert (first["committed"], first["end"], first["lag"], first["member"]) == (1, 3, 2, "m1")
    assert "streams group at epoch" in barnabas("groups", "describe", group).err
    assert "NON_EMPTY_GROUP" in barnabas("groups", "delete", group).err
    assert member.leave() == 0
    assert barnabas("groups", "reset", group, "--all-topics", "--to", "earliest").status == 0
    assert committed(address, group, filled, 1) == [0]
    assert barnabas("groups", "delete", group).status == 0
    assert group not in barnabas("groups", "list").text


def test_a_share_group(barnabas: Run, address: str, filled: str, group: str):
    """It is shown while it reads, and reset and deleted when it has no members."""
    assert configure(address, group, share_auto_offset_reset="earliest") == 0
    member = ShareMember(address, group).join(filled)
    deadline = time.monotonic() + PATIENCE_S
    taken: list = []
    while sum(last - first + 1 for _, first, last, _ in taken) < 6:
        assert time.monotonic() < deadline
        taken += member.fetch(wait_ms=500)
    assert member.acknowledge(0, 2, 1, 2, 1) == 0  # of the first partition; its second comes back
    rows = json.loads(barnabas("groups", "list", "--json").text)
    assert ("Stable", "share") in [
        (row["state"], row["type"].lower()) for row in rows if row["group"] == group
    ]
    (told,) = json.loads(barnabas("groups", "describe", group, "--json").text)
    assert (told["state"], told["assignor"]) == ("Stable", "simple")
    assert [(r["partition"], r["end"], r["lag"]) for r in told["partitions"]][0] == (0, 3, 1)
    assert {r["member"] for r in told["partitions"]} == {"m1"}
    assert "NON_EMPTY_GROUP" in barnabas("groups", "delete", group).err
    assert member.leave() == 0
    member.close()
    reset = ("groups", "reset", group, "--topic", f"{filled}:1", "--to", "2")
    assert barnabas(*reset).status == 0
    (told,) = json.loads(barnabas("groups", "describe", group, "--json").text)
    assert told["state"] == "Empty"
    rows = [(r["partition"], r["committed"], r["lag"]) for r in told["partitions"]]
    assert rows[1] == (1, 2, 1)
    assert barnabas("groups", "delete", group).status == 0
    assert group not in barnabas("groups", "list").text
