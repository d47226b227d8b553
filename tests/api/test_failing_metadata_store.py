"""When the metadata store is full, or its commits fail, clients get an error that says so."""

import contextlib
import logging
import sqlite3

from api.admin_calls import SET, TOPIC, admin_on

from barnabas.metadata.tree import OutcomeUnknown

TIMED_OUT, STORAGE = 7, 56


@contextlib.contextmanager
def full_store(admin):
    """SQLite itself refuses more pages, as it does on a full disk."""
    connection = admin.broker.node.opened.tree._database._connection
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    filler = 0
    with contextlib.suppress(sqlite3.OperationalError):  # fills the free part of the last pages
        connection.execute("CREATE TABLE filler (x BLOB)")
        for filler in range(1000):  # noqa: B007
            connection.execute("INSERT INTO filler VALUES (zeroblob(3000))")
    assert filler < 999
    yield
    connection.execute("PRAGMA max_page_count=1000000")


def create(admin, name, version):
    topic = {"name": name, "numPartitions": 200, "replicationFactor": 1}
    topic |= {"assignments": [], "configs": []}
    asked = {"topics": [topic], "timeoutMs": 9000} | ({"validateOnly": False} if version else {})
    return admin.call(19, version, **asked).topics[0]


def test_create_topics_on_a_full_metadata_store_is_a_storage_error(tmp_path, caplog):
    """F50: it was UNKNOWN_SERVER_ERROR and a traceback."""
    with admin_on(tmp_path) as a, caplog.at_level(logging.ERROR):
        a.create("before")
        with full_store(a):
            for version in range(8):
                row = create(a, f"t{version}", version)
                assert row.errorCode == STORAGE, version
                assert version == 0 or "full" in row.errorMessage
            grown = a.call(37, 3, topics=[{"name": "before", "count": 300, "assignments": None}],
                           timeoutMs=9000, validateOnly=False)  # fmt: skip
            assert grown.results[0].errorCode == STORAGE
            long = ("follower.replication.throttled.replicas", SET, ",".join(["1:1"] * 5000))
            assert a.alter(TOPIC, "before", long)[0] == STORAGE
        assert [row for row in caplog.records if row.exc_info] == []
        assert "CreateTopics from" in caplog.text and "KAFKA_STORAGE_ERROR" in caplog.text
        assert a.names() == ["before"]
        a.create("after")
        assert a.produce("after") == 0


def test_create_topics_whose_commit_fails_is_a_timeout_that_clients_retry(
    tmp_path, monkeypatch, caplog
):
    with admin_on(tmp_path) as a:
        database = a.broker.node.opened.tree._database
        real = database.commit

        def failing(table, changes):
            monkeypatch.setattr(database, "commit", real)
            database._disconnect()
            raise OutcomeUnknown("disk I/O error")

        monkeypatch.setattr(database, "commit", failing)
        assert create(a, "t", 7).errorCode == TIMED_OUT
        assert [row for row in caplog.records if row.exc_info] == []
        assert create(a, "t", 7).errorCode == 0
