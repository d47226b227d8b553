"""AlterReplicaLogDirs (34): a replica moves to another log directory while it is served."""

import os
import threading
import urllib.request
from contextlib import closing, contextmanager

import pytest
from api.admin_calls import BROKER, SET, Admin, admin_on
from compat.support import Wire
from oracle.exposition import read_page, value_of
from waiting import soon

from barnabas.server import alter_log_dirs

STORAGE, LOG_DIR_NOT_FOUND, UNKNOWN, NOT_AVAILABLE, TOO_LONG = 56, 57, 3, 9, 17
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
RECORDS = 50


def dirs_of(tmp_path):
    return [str(tmp_path / name) for name in ("one", "two")]


def broker_on(tmp_path, **settings):
    return admin_on(tmp_path, log_dirs=",".join(dirs_of(tmp_path)), **settings)


def alter(a, path, topic="t", partition=0):
    row = {"path": str(path), "topics": [{"name": topic, "partitions": [partition]}]}
    answer = a.call(34, 2, dirs=[row])
    return answer.results[0].partitions[0].errorCode


def run_moves(a):
    """Copies as far as the rate allows, as the moves' own thread does."""
    a.broker.node.serving.log_dir_moves().run()


def limit(a, rate):
    assert a.alter(BROKER, "", (RATE, SET, str(rate))) == (0, None)


def hold(a):
    """Uses up the rate, so that no record is copied."""
    limit(a, 0)
    now_ms = a.broker.node.clock.monotonic_ns() // 1_000_000
    a.broker.node.serving.log_dir_moves()._throttle.note(1, now_ms)


@contextmanager
def second_connection(a):
    with closing(Wire(a.broker.bootstrap_servers)) as wire:
        yield Admin(a.broker, wire)


def rows(a, topic="t"):
    """(name of the log directory, is future, size, lag) of each log of the partition."""
    answer = a.call(35, 1, topics=[{"topic": topic, "partitions": [0]}])
    return sorted(
        (os.path.basename(row.logDir), part.isFutureKey, part.partitionSize, part.offsetLag)
        for row in answer.results
        for found in row.topics
        for part in found.partitions
    )


def flushes(a):
    """The number of flushes by the threads of each log directory."""
    loaded = a.broker.node.loaded
    paths = [row.path.name for row in loaded.logs.directories()]
    counts = [commit.counters()["flushes"] for commit in loaded.group_commits]
    return dict(zip(paths, counts, strict=True))


def started(a, size=1000):
    """Writes records to a topic, and returns the directory that it is in and the other one."""
    a.create("t")
    for _ in range(RECORDS):
        assert a.produce("t", size=size) == 0
    here = rows(a)[0][0]
    return here, {"one": "two", "two": "one"}[here]


def test_a_replica_moves_and_clients_see_no_difference(tmp_path):
    with broker_on(tmp_path) as a:
        here, there = started(a)
        size = rows(a)[0][2]
        log = a.broker.node.loaded.replicas.partition("t", 0).log
        assert alter(a, tmp_path / there) == 0
        run_moves(a)
        assert rows(a) == [(there, False, size, 0)]
        assert not (tmp_path / here / "t-0").exists() and (tmp_path / there / "t-0").exists()
        assert a.broker.node.loaded.replicas.partition("t", 0).log is log
        before = flushes(a)
        assert a.produce("t") == 0 and a.offset("t", -1) == RECORDS + 1
        soon(lambda: flushes(a)[there] > before[there])  # counted after the answer
        assert flushes(a)[here] == before[here]
        assert alter(a, tmp_path / here) == 0  # and back
        run_moves(a)
        assert rows(a)[0][:2] == (here, False)
    with broker_on(tmp_path) as a:
        assert a.offset("t", -1) == RECORDS + 1 and a.produce("t") == 0
        assert rows(a)[0][:2] == (here, False)


def test_a_move_in_progress_is_a_future_replica_and_ends_on_request(tmp_path):
    with broker_on(tmp_path) as a:
        here, there = started(a)
        hold(a)
        assert alter(a, tmp_path / there) == 0
        assert alter(a, tmp_path / there) == 0  # again: it goes on
        run_moves(a)
        [current, future] = sorted(rows(a), key=lambda row: row[1])
        assert current[:2] == (here, False) and future == (there, True, 0, RECORDS)
        assert a.produce("t") == 0
        assert alter(a, tmp_path / here) == 0
        assert [row[:2] for row in rows(a)] == [(here, False)]


def test_a_move_goes_on_after_a_restart(tmp_path):
    with broker_on(tmp_path) as a:
        here, there = started(a)
        hold(a)
        assert alter(a, tmp_path / there) == 0
        assert [row[1] for row in rows(a)].count(True) == 1
    with broker_on(tmp_path) as a:
        limit(a, 1 << 40)
        run_moves(a)
        assert [row[:2] for row in rows(a)] == [(there, False)]
        assert a.offset("t", -1) == RECORDS


def test_errors(tmp_path):
    with broker_on(tmp_path) as a:
        here, there = started(a)
        assert alter(a, tmp_path / "three") == LOG_DIR_NOT_FOUND
        assert alter(a, there) == LOG_DIR_NOT_FOUND  # a relative path
        assert alter(a, tmp_path / "three", topic="none") == LOG_DIR_NOT_FOUND
        assert alter(a, tmp_path / there, topic="none") == UNKNOWN
        assert alter(a, tmp_path / there, partition=7) == UNKNOWN
        long = "x" * 240
        a.create(long)
        assert alter(a, tmp_path / there, topic=long) == TOO_LONG
        assert alter(a, f"{tmp_path / here}{os.sep}") == 0  # it is there already
        assert rows(a)[0][:2] == (here, False) and len(rows(a)) == 1


def test_a_failed_directory(tmp_path):
    with broker_on(tmp_path) as a:
        started(a)
    third = tmp_path / "three"
    third.write_bytes(b"")
    dirs = ",".join([*dirs_of(tmp_path), str(third)])
    with admin_on(tmp_path, log_dirs=dirs) as a:
        [(here, *_)] = rows(a)
        there = {"one": "two", "two": "one"}[here]
        assert alter(a, third) == STORAGE
        assert alter(a, tmp_path / there) == STORAGE  # as in Kafka: the copy may be on the third
        assert alter(a, tmp_path / here) == 0


@pytest.mark.parametrize("name", ["one", "two"])
def test_the_directory_of_a_partition_that_does_not_exist_yet_is_remembered(tmp_path, name):
    with broker_on(tmp_path) as a:
        assert alter(a, tmp_path / name) == UNKNOWN
        a.create("t")
        assert rows(a)[0][0] == name


def moves(a):
    """MaxLag and FailedPartitionsCount of ReplicaAlterLogDirsManager."""
    with urllib.request.urlopen(f"{a.broker.node.metrics.address}/metrics", timeout=10) as found:
        page = read_page(found.read().decode())
    name, of = "kafka_server_replicaalterlogdirsmanager_", {"clientId": "ReplicaAlterLogDirs"}
    return [value_of(page, name + what, **of) for what in ("maxlag", "failedpartitionscount")]


def test_the_metrics_of_moves(tmp_path, monkeypatch):
    with broker_on(tmp_path, metrics_port="0") as a:
        _, there = started(a)
        assert moves(a) == [0, 0]
        hold(a)
        assert alter(a, tmp_path / there) == 0
        assert moves(a) == [RECORDS, 0]
        with monkeypatch.context() as patch:
            patch.setattr(alter_log_dirs, "copy_step", failed)
            limit(a, 1 << 40)
            run_moves(a)
        assert moves(a) == [0, 1]
        hold(a)
        assert alter(a, tmp_path / there) == 0
        assert moves(a) == [RECORDS, 0]


def failed(*_arguments):
    raise OSError("the disk is full")


def test_a_deleted_topic_ends_its_move(tmp_path):
    with broker_on(tmp_path) as a:
        _, there = started(a)
        hold(a)
        assert alter(a, tmp_path / there) == 0
        assert a.delete("t") == [0]
        run_moves(a)
        assert rows(a) == []
        a.create("t")
        assert a.produce("t") == 0


def test_writes_go_on_while_a_partition_moves_to_and_fro(tmp_path):
    """No write is refused, and each record is there once."""
    with broker_on(tmp_path) as a, second_connection(a) as writer:
        here, there = started(a)
        stop, errors, count = threading.Event(), [], [0]

        def write():
            while not stop.is_set():
                errors.append(writer.produce("t", size=2000))
                count[0] += 1

        thread = threading.Thread(target=write)
        thread.start()
        for turn in range(6):
            target = (there, here)[turn % 2]
            assert alter(a, tmp_path / target) == 0
            while [row[:2] for row in rows(a)] != [(target, False)]:
                run_moves(a)
        stop.set()
        thread.join()
        assert set(errors) == {0} and count[0] > 0
        assert a.offset("t", -1) == RECORDS + count[0]
