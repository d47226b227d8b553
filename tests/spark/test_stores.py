"""What checkpoints and loads need from a store, for each kind: a local disk, HDFS, S3."""

import socket
import threading
import time

import pytest

from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.failures import (
    CheckpointError,
    ConcurrentWriter,
    IncompleteCheckpoint,
    TruncatedFile,
    UnknownVersion,
)
from barnabas.spark.files import files_at
from barnabas.spark.offsets import offsets_json
from barnabas.spark.store import SUCCESS

WORDS = b"v1\n\xe2\x82\xac\n" * 3


def test_files_come_back_as_they_were_put(store):
    files = files_at(store)
    assert files.names("") == files.names("none") == []
    files.put_if_absent("a/one two+%=#?.txt", WORDS)
    files.put_if_absent("a/b/c", b"")
    files.put_if_absent("a/.hidden", b"1")
    assert files.names("a") == ["b", "one two+%=#?.txt"] and files.names("") == ["a"]
    assert files.read("a/one two+%=#?.txt") == WORDS and files.read("a/b/c") == b""
    assert abs(files.modified_ms("a/b/c") - time.time() * 1000) < 600_000
    files.replace("a/b/c", b"new")
    assert files.read("a/b/c") == b"new"
    files.delete("a/b/c")
    files.delete("a/b/c")
    with pytest.raises(FileNotFoundError) as raised:
        files_at(store).read("a/b/c")
    assert str(raised.value.filename).endswith("a/b/c")
    with pytest.raises(FileNotFoundError):
        files.modified_ms("none")
    files.delete_tree("a")
    files.delete_tree("a")
    assert files.names("a") == []


def test_a_name_is_put_once(store):
    files = files_at(store)
    files.put_if_absent("offsets/0", b"first")
    with pytest.raises(FileExistsError):
        files.put_if_absent("offsets/0", b"second")
    assert files.read("offsets/0") == b"first"
    assert files.names("offsets") == ["0"]


def test_only_one_of_many_writers_creates_the_name(store):
    won, lost, start = [], [], threading.Barrier(6)

    def write(number):
        files = files_at(store)
        start.wait()
        try:
            files.put_if_absent("offsets/2", b"%d" % number * 700)
            won.append(number)
        except FileExistsError:
            lost.append(number)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(lost) == 5
    assert files_at(store).read("offsets/2") == b"%d" % won[0] * 700
    assert files_at(store).names("offsets") == ["2"]


def test_a_file_that_was_not_finished_is_not_there(store):
    files = files_at(store)
    with files.create("x/whole") as file:
        file.write(b"1" * 100_000)
        assert file.tell() == 100_000
    with pytest.raises(KeyboardInterrupt), files.create("x/half") as file:
        file.write(b"1")
        raise KeyboardInterrupt
    assert files.names("x") == ["whole"] and len(files.read("x/whole")) == 100_000


def staged(files, run):
    for name in ("data/1", "data/2", SUCCESS):
        with files.create(f"_staging/{run}/{name}") as file:
            file.write(f"{run} {name}".encode())
    return {name: f"_staging/{run}/{name}" for name in ("data/1", "data/2", SUCCESS)}


def test_a_directory_is_published_once(store):
    files = files_at(store)
    files.publish(staged(files, "a"), "topic/batch=0", gathered="_staging/a/together")
    with pytest.raises(FileExistsError):
        files.publish(staged(files, "b"), "topic/batch=0", gathered="_staging/b/together")
    assert files.names("topic") == ["batch=0"]
    assert files.names("topic/batch=0") == [SUCCESS, "data"]
    for name in ("data/1", "data/2", SUCCESS):
        assert files.read(f"topic/batch=0/{name}") == f"a {name}".encode()


# ------------------------------------------------------------------------------ checkpoints


def filled(store):
    """Batches 0 to 3 of topic t, the last one not committed."""
    checkpoint = Checkpoint(files_at(store))
    checkpoint.create(query_id="q-1")
    checkpoint.begin_at({"t": {0: 0, 1: 0}}, now_ms=1)
    for n in (1, 2, 3):
        checkpoint.plan(n, [offsets_json({"t": {0: n * 10, 1: n * 5}})], now_ms=n)
        if n < 3:
            checkpoint.commit_batch(n)
    return checkpoint


def content(store):
    files = files_at(store)
    found = {"metadata": files.read("metadata"), "sources/0/0": files.read("sources/0/0")}
    for log in ("offsets", "commits"):
        found |= {f"{log}/{name}": files.read(f"{log}/{name}") for name in files.names(log)}
    return found


def test_checkpoints_are_the_same_bytes_everywhere(store, tmp_path):
    filled(store)
    filled(str(tmp_path / "other"))
    assert content(store) == content(str(tmp_path / "other"))
    assert Checkpoint(files_at(store)).verify().problems == []


def test_damage_is_named_and_nothing_is_written(store):
    checkpoint = filled(store)
    data = checkpoint.files.read("offsets/2")
    for damaged, kind, words in (
        (data[:-9], TruncatedFile, "Expecting|Unterminated"),
        (b"", TruncatedFile, "it is empty"),
        (data.replace(b"v1", b"v7"), UnknownVersion, "version 7 is unknown"),
    ):
        # On a local disk `replace` makes a .crc of the damaged bytes too: a whole file that holds
        # the wrong thing.
        checkpoint.files.replace("offsets/2", damaged)
        before = content(store)
        with pytest.raises(kind, match=words) as raised:
            checkpoint.rewind(2, replay=True)
        assert raised.value.path == f"{store}/offsets/2"
        assert [p.path for p in checkpoint.verify().problems] == [f"{store}/offsets/2"]
        with pytest.raises(kind):
            checkpoint.finished_batch(replay=True)
        assert content(store) == before


def test_a_second_writer_is_reported_and_nothing_is_overwritten(store):
    first, second = filled(store), Checkpoint(files_at(store))
    before = content(store)
    with pytest.raises(ConcurrentWriter) as raised:
        second.plan(3, ['{"t":{"0":99,"1":99}}'], now_ms=1)
    assert raised.value.path == f"{store}/offsets/3"
    first.commit_batch(3)
    with pytest.raises(ConcurrentWriter) as raised:
        second.commit_batch(3)
    assert raised.value.path == f"{store}/commits/3"
    with pytest.raises(ConcurrentWriter) as raised:
        second.create()
    assert raised.value.path == f"{store}/metadata"
    after = content(store)
    assert after.pop("commits/3") and after == before


def test_a_rewind_forgets_on_every_store(store):
    checkpoint = filled(store)
    assert checkpoint.rewind(1, replay=True) == [3, 2]
    assert checkpoint.batch_ids() == checkpoint.batch_ids("commits") == [0, 1]
    with pytest.raises(IncompleteCheckpoint):
        checkpoint.batch(2)


# ------------------------------------------------------------------------------ HDFS alone


@pytest.mark.java
def test_where_hdfs_is_found(hdfs, tmp_path, monkeypatch):
    files_at(f"{hdfs.web}/found").put_if_absent("x", b"1")
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert files_at("hdfs://nn.example:8020/a").nodes == ["nn.example:9870"]
    assert files_at("swebhdfs://nn.example/a").nodes == ["nn.example:9871"]
    with pytest.raises(CheckpointError, match="hdfs:///a: hdfs:/// needs fs.defaultFS"):
        files_at("hdfs:///a")
    monkeypatch.setenv("HADOOP_CONF_DIR", hdfs.conf_dir())
    assert files_at(f"{hdfs.hdfs}/found").read("x") == b"1"
    dead = socket.create_server(("127.0.0.1", 0))
    settings = {
        "fs.defaultFS": "hdfs://service",
        "dfs.ha.namenodes.service": "a, b",
        "dfs.namenode.http-address.service.a": f"127.0.0.1:{dead.getsockname()[1]}",
        "dfs.namenode.http-address.service.b": f"127.0.0.1:{hdfs.http_port}",
    }
    dead.close()
    rows = "".join(
        f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items()
    )
    (tmp_path / "core-site.xml").write_text(f"<configuration>{rows}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    for url in ("hdfs://service/found", "hdfs:///found"):
        assert files_at(url).read("x") == b"1"
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/core-site.xml: not XML"):
        files_at("hdfs://service/found")


@pytest.mark.java
def test_what_hdfs_refuses_is_named(hdfs, monkeypatch):
    files_at(f"{hdfs.web}/mine").put_if_absent("x", b"1")
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody-special")
    with pytest.raises(PermissionError) as raised:
        files_at(f"{hdfs.web}/mine").put_if_absent("y", b"1")
    assert raised.value.filename.startswith(f"{hdfs.web}/mine/")
    assert "nobody-special" in raised.value.strerror
    nowhere = files_at("webhdfs://127.0.0.1:1/cp")
    with pytest.raises(OSError) as lost:
        nowhere.read("metadata")
    assert lost.value.filename == "webhdfs://127.0.0.1:1/cp/metadata"


# ------------------------------------------------------------------------------ S3 alone


def test_a_store_that_ignores_the_condition_is_refused(s3, monkeypatch, request):
    from spark.store_fixtures import place_of

    files = files_at(place_of("s3", request, monkeypatch))

    def drop(request, **_):
        del request.headers["If-None-Match"]

    files.client.meta.events.register("before-sign.s3.PutObject", drop)
    with pytest.raises(CheckpointError, match="does not honour If-None-Match"):
        files.put_if_absent("metadata", b"1")
    assert files.names("") == []


def test_a_put_whose_answer_was_lost_finds_itself(s3, monkeypatch, request):
    from spark.store_fixtures import place_of

    files = files_at(place_of("s3", request, monkeypatch))
    files.put_if_absent("metadata", b"1")
    sent = []

    def again(**_):
        sent.append(1)
        return 0 if len(sent) == 1 else None  # after 0 seconds, once

    files.client.meta.events.register_first("needs-retry.s3.PutObject", again)
    files.put_if_absent("offsets/0", b"mine")
    assert len(sent) == 2 and files.read("offsets/0") == b"mine"
    with pytest.raises(FileExistsError):
        files.put_if_absent("offsets/0", b"other")


def test_a_bucket_that_is_not_there_is_named(s3, monkeypatch, request):
    from spark.store_fixtures import place_of

    place_of("s3", request, monkeypatch)
    with pytest.raises(OSError) as raised:
        files_at("s3://nobody/cp").names("offsets")
    assert raised.value.filename == "s3://nobody/cp/offsets"
    with pytest.raises(CheckpointError, match="needs a bucket"):
        files_at("s3:///cp")
