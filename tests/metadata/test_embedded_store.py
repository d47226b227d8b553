"""The file of the embedded store: refusals, damage, full disks and failing syncs."""

import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading

import pytest

from barnabas.metadata import database
from barnabas.metadata.database import Database, SchemaTooNew, StoreCorrupt, StoreInUse
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import (
    CreateNode,
    EventType,
    OutcomeUnknown,
    SessionState,
    StoreUnavailable,
    WatchEvent,
)


def open_tree(directory, **options):
    return EmbeddedTree(directory, clock_ms=lambda: 1, **options)


def filled(directory, nodes=200):
    tree = open_tree(directory)
    tree.create("/n")
    tree.multi([CreateNode(f"/n/{i:04d}", b"data of node %d" % i * 10) for i in range(nodes)])
    tree.close()
    return directory / "metadata.db"


def change(path, *statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_a_second_process_is_refused(tmp_path):
    tree = open_tree(tmp_path)
    code = textwrap.dedent(
        f"""
        from pathlib import Path
        from barnabas.metadata.embedded import EmbeddedTree
        EmbeddedTree(Path({str(tmp_path)!r}), clock_ms=lambda: 1)
        """
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.returncode != 0
    assert f"metadata.db is in use by the process {os.getpid()}" in child.stderr
    with pytest.raises(StoreInUse):
        open_tree(tmp_path)
    tree.create("/still_served")
    tree.close()
    open_tree(tmp_path).close()


def test_a_database_held_by_another_program_is_refused(tmp_path):
    path = filled(tmp_path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreInUse, match=r"metadata\.db is locked"):
        open_tree(tmp_path)
    other.close()
    open_tree(tmp_path).close()


def test_the_file_is_for_its_owner_alone(tmp_path):
    tree = open_tree(tmp_path / "made" / "here")
    modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "made" / "here").iterdir()}
    tree.close()
    assert set(modes) == {"metadata.db", "metadata.db-wal", "metadata.db.lock"}
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize(
    "damage",
    [
        b"this is no database" * 100,
        lambda data: data[:5000],
        lambda data: data[:4096] + bytes(4096) + data[8192:],
        lambda data: data[: len(data) // 2] + os.urandom(len(data) - len(data) // 2),
    ],
)
def test_a_damaged_file_is_named(tmp_path, damage):
    path = filled(tmp_path)
    path.write_bytes(damage if isinstance(damage, bytes) else damage(path.read_bytes()))
    with pytest.raises(StoreCorrupt, match=r"metadata\.db is damaged: .*Put back a copy"):
        open_tree(tmp_path)


def test_flipped_bits_never_give_wrong_data(tmp_path):
    """At each place the file is refused, or (in unused bytes) the contents are unchanged."""
    path = filled(tmp_path, nodes=30)
    good = path.read_bytes()
    tree = open_tree(tmp_path)
    wanted = sorted(tree.subtree("/"))
    tree.close()
    good = path.read_bytes()
    refused = 0
    for position in range(0, len(good), max(1, len(good) // 100)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        path.write_bytes(bad)
        try:
            tree = open_tree(tmp_path)
        except StoreUnavailable:
            refused += 1
            continue
        found = sorted(tree.subtree("/"))
        tree.close()
        assert found == wanted, position
    assert refused > 20


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE nodes SET data = x'00' WHERE path = '/n/0007'",
        "UPDATE nodes SET data = 'text' WHERE path = '/n/0007'",
        "UPDATE nodes SET version = 5 WHERE path = '/n/0007'",
        "UPDATE nodes SET path = '/n/9999' WHERE path = '/n/0007'",
        "UPDATE nodes SET czxid = 1e300 WHERE path = '/n/0007'",
        "DELETE FROM nodes WHERE path = '/n'",
        "DELETE FROM nodes WHERE path = '/'",
        "DELETE FROM meta",
        "DROP TABLE nodes",
        "PRAGMA application_id=1",
    ],
)
def test_rows_changed_by_another_program_are_refused(tmp_path, statement):
    change(filled(tmp_path), statement)
    with pytest.raises(StoreCorrupt, match="damaged"):
        open_tree(tmp_path)


def test_a_later_schema_is_refused(tmp_path):
    change(filled(tmp_path), f"PRAGMA user_version={database.SCHEMA_VERSION + 1}")
    with pytest.raises(SchemaTooNew, match="schema version 2"):
        open_tree(tmp_path)


def test_an_earlier_schema_is_upgraded_or_left_as_it_was(tmp_path):
    path = filled(tmp_path)
    change(path, "PRAGMA user_version=0", "ALTER TABLE nodes RENAME TO old_nodes")

    def fails(connection):
        connection.execute("ALTER TABLE old_nodes RENAME TO nodes")
        connection.execute("SELECT * FROM absent")

    with pytest.raises(StoreUnavailable):
        Database(tmp_path, wal_pages_max=1000, upgrades={0: fails})
    with pytest.raises(StoreCorrupt, match="which never existed"):
        Database(tmp_path, wal_pages_max=1000, upgrades={})
    upgrade = {0: lambda c: c.execute("ALTER TABLE old_nodes RENAME TO nodes")}
    Database(tmp_path, wal_pages_max=1000, upgrades=upgrade).close()
    tree = open_tree(tmp_path)
    assert len(tree.children("/n")) == 200
    tree.close()


def test_a_full_disk_is_a_clean_error_and_goes_away(tmp_path):
    tree = open_tree(tmp_path)
    tree.create("/n")
    connection = tree._database._require()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(StoreUnavailable, match="Free some space"):
        tree.multi([CreateNode(f"/n/{i}", bytes(5000)) for i in range(20)])
    assert tree.state is SessionState.CONNECTED
    assert tree.children("/n") == []
    connection.execute("PRAGMA max_page_count=100000")
    tree.multi([CreateNode(f"/n/{i}", bytes(5000)) for i in range(20)])
    tree.close()
    tree = open_tree(tmp_path)
    assert len(tree.children("/n")) == 20
    tree.close()


class FailingCommit:
    """A connection whose next COMMIT fails with EIO, before or after it takes effect."""

    def __init__(self, connection, done):
        self._connection = connection
        self._done = done

    def execute(self, statement, *arguments):
        if statement == "COMMIT":
            self._connection.execute("COMMIT" if self._done else "ROLLBACK")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return self._connection.execute(statement, *arguments)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize("done", [True, False])
def test_an_unknown_outcome_is_settled_by_opening_anew(tmp_path, done):
    tree = open_tree(tmp_path)
    tree.create("/a", b"old")
    tree.create("/mine", ephemeral=True)
    told, states, connected = [], [], threading.Event()
    tree.exists("/a", told.append)
    tree.exists("/b", told.append)
    tree.children("/", told.append)

    def listen(state):
        states.append(state)
        if state is SessionState.CONNECTED:
            connected.set()

    tree.add_listener(listen)
    zxid = tree.exists("/mine").czxid
    tree._database._connection = FailingCommit(tree._database._connection, done)
    with pytest.raises(OutcomeUnknown):
        tree.create("/b", b"new")
    assert tree.state is SessionState.SUSPENDED
    assert (tree.exists("/b") is not None) == done
    assert connected.wait(10)
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    created = [WatchEvent(EventType.CREATED, "/b"), WatchEvent(EventType.CHILDREN, "/")]
    assert told == (created if done else [])
    assert tree.exists("/mine").ephemeral_owner == tree.session_id
    tree.create("/c")
    assert tree.exists("/c").czxid > zxid + 1  # the number of the unknown commit is not used again
    tree.close()


def test_while_the_file_cannot_be_opened_calls_are_refused(tmp_path):
    tree = open_tree(tmp_path)
    tree._database._connection = FailingCommit(tree._database._connection, done=False)
    with pytest.raises(OutcomeUnknown):
        tree.create("/b")
    path = tmp_path / "metadata.db"
    path.rename(tmp_path / "away")
    path.mkdir()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            tree.get("/")
        with pytest.raises(StoreUnavailable):
            tree.create("/c")
    path.rmdir()
    (tmp_path / "away").rename(path)
    tree.create("/c")
    assert tree.state is SessionState.CONNECTED
    tree.close()


EIO_SCRIPT = """
import sys
from pathlib import Path
from barnabas.metadata.embedded import EmbeddedTree
from barnabas.metadata.tree import OutcomeUnknown, StoreUnavailable
tree = EmbeddedTree(Path(sys.argv[1]), clock_ms=lambda: 1)
refused, unknown = [], []
for number in range(12):
    try:
        tree.create(f"/n{number}", bytes(3000))
        print("done", number)
    except OutcomeUnknown:
        print("unknown", number)
    except StoreUnavailable:
        print("refused", number)
tree.close()
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    "inject",
    [
        "inject=fdatasync:error=EIO:when=14",
        "inject=pwrite64:error=EIO:when=40",
        "inject=pwrite64:error=ENOSPC:when=40..43",
        "inject=fdatasync:error=EIO:when=14..17",
    ],
)
def test_failing_writes_and_syncs_lose_nothing_answered(tmp_path, inject):
    script = tmp_path / "script.py"
    script.write_text(EIO_SCRIPT)
    trace = tmp_path / "trace"
    command = ["strace", "-qq", "-f", "-o", str(trace), "-e", "trace=pwrite64,fdatasync"]
    command += ["-e", inject, sys.executable, str(script), str(tmp_path / "store")]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert child.returncode == 0, child.stderr
    assert "(INJECTED)" in trace.read_text()
    answers = [line.split() for line in child.stdout.splitlines()]
    assert len(answers) == 12 and answers[-1][0] == "done"
    assert any(word != "done" for word, _number in answers)
    tree = open_tree(tmp_path / "store")
    for word, number in answers:
        there = tree.exists(f"/n{number}") is not None
        assert word == "unknown" or there == (word == "done"), (word, number)
    tree.close()


def test_ephemerals_of_a_session_that_died_are_gone(tmp_path):
    code = textwrap.dedent(
        f"""
        import os
        from pathlib import Path
        from barnabas.metadata.embedded import EmbeddedTree
        tree = EmbeddedTree(Path({str(tmp_path)!r}), clock_ms=lambda: 1)
        tree.create("/kept")
        tree.create("/gone", ephemeral=True)
        os.write(1, b"%d" % tree.session_id)
        os._exit(9)
        """
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.returncode == 9, child.stderr
    tree = open_tree(tmp_path)
    assert tree.children("/") == ["kept"]
    assert tree.session_id > int(child.stdout)
    tree.close()
