"""A broker refuses data and metadata of a later version in one line, and changes nothing
(docs/versions.md)."""

import json
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from cli.conftest import run_command
from cli.test_start import refused, where
from durability.broker_process import BrokerProcess, free_port

from barnabas.metadata.embedded import EmbeddedTree

PAGE = (Path(__file__).resolve().parents[2] / "docs/versions.md").read_text()
OF_OPENING = {".lock", "metadata.db.lock", "metadata.db", "metadata.db-wal"}  # numbers of sessions


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The directory of a broker with a topic, which was stopped."""
    place = tmp_path_factory.mktemp("written") / "data"
    port = free_port()
    broker = BrokerProcess(place, port)
    run_command("topics", "create", "news", "--bootstrap-server", f"127.0.0.1:{port}")
    broker.stop()
    return place


def meta_properties(place):
    path = place / "meta.properties"
    path.write_text(path.read_text().replace("version=0", "version=2"))


def schema(place):
    connection = sqlite3.connect(place / "metadata/metadata.db")
    connection.execute("PRAGMA user_version=2")
    connection.close()


def node(path):
    def change(place):
        tree = EmbeddedTree(place / "metadata", clock_ms=lambda: int(time.time() * 1000))
        found = json.loads(tree.get(path)[0])
        tree.set(path, json.dumps(found | {"version": 9}).encode())
        tree.close()

    return change


def content(place):
    """All files but those that each start writes, and the nodes of the metadata."""
    found = {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and path.name not in OF_OPENING
    }
    connection = sqlite3.connect(place / "metadata/metadata.db")
    found["nodes"] = connection.execute("SELECT * FROM nodes ORDER BY path").fetchall()
    connection.close()
    assert len(found["nodes"]) > 10
    return found


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (meta_properties, "DIR/meta.properties has version '2'; this broker supports"),
        (schema, "DIR/metadata/metadata.db has schema version 2; this barnabas knows up to 1."),
        (node("/cluster/id"), "/cluster/id: version 9 is newer than 1, the latest known"),
        (
            node("/brokers/topics/news"),
            "/brokers/topics/news: version 9 is newer than 3, the latest known",
        ),
        (
            node("/brokers/topics/news/partitions/0/state"),
            "/brokers/topics/news: version 9 is newer than 1, the latest known",
        ),
    ],
    ids=["meta.properties", "schema", "cluster id", "topic", "partition"],
)
def test_a_later_version_is_refused_and_nothing_is_changed(written, tmp_path, change, line):
    place = tmp_path / "data"
    shutil.copytree(written, place)
    change(place)
    before = content(place)
    assert line.replace("DIR", str(place)) in refused(*where(place, free_port()))
    assert content(place) == before


def test_the_page_on_versions_has_these_lines():
    for text in ("has schema version 2; this barnabas knows up to 1.", "has version '2'; this"):
        assert text in PAGE
    assert "version 9 is newer than 3, the latest known" in PAGE
