"""A log directory without its meta.properties: the node keeps its id, or the start is refused."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from api.admin_calls import admin_on

from barnabas.metadata.znodes import TopicAssignment, topic_path
from barnabas.node import CannotStart

META = "meta.properties"


@pytest.mark.parametrize("loss", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_lost_meta_properties_is_written_again_and_no_partition_goes_astray(tmp_path, caplog, loss):
    with admin_on(tmp_path, node_id="4") as a:  # a new node would get id 1
        a.create("t")
        assert a.produce("t", count=3) == 0
        meta = a.data / META
    loss(meta)
    with caplog.at_level(logging.WARNING), admin_on(tmp_path) as a:
        assert a.broker.node.node_id == 4
        assert a.directories("t") == ["t-0"]
        assert a.offset("t", -1) == 3
    assert b"broker.id=4" in meta.read_bytes()
    assert "written again for node 4" in caplog.text


def test_another_node_id_beside_lost_meta_properties_is_refused(tmp_path):
    with admin_on(tmp_path, node_id="4") as a:
        a.create("t")
        meta = a.data / META
    meta.unlink()
    with (
        pytest.raises(CannotStart, match="on node 4. Set node.id"),
        admin_on(tmp_path, node_id="5"),
    ):
        pass
    assert sorted(path.name for path in meta.parent.glob("t-*")) == ["t-0"]
    with admin_on(tmp_path, node_id="4") as a:
        assert a.offset("t", -1) == 0


def test_one_of_several_nodes_of_the_metadata_may_be_named(tmp_path):
    """A directory that once became another node holds partitions of both."""
    with admin_on(tmp_path, node_id="4") as a:
        a.create("t")
        a.create("u")
        tree, path = a.broker.node.opened.tree, topic_path("u")
        found = TopicAssignment.decode(tree.get(path)[0])
        tree.set(path, replace(found, partitions={0: (9,)}).encode())
        meta = a.data / META
    meta.unlink()
    with pytest.raises(CannotStart, match="on node 4, 9. Set node.id"), admin_on(tmp_path):
        pass
    with admin_on(tmp_path, node_id="4") as a:
        assert "t-0" in a.directories("t")


def test_a_stray_partition_whose_topic_exists_is_said_at_every_start(tmp_path, caplog):
    with admin_on(tmp_path) as a:
        a.create("t")
        assert a.produce("t", count=3) == 0
        folder = a.data / "t-0"
    stray = folder.with_name(f"t-0.{'0a' * 16}-stray")
    folder.rename(stray)
    for _start in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING), admin_on(tmp_path) as a:
            assert (a.offset("t", -2), a.offset("t", -1)) == (3, 3)  # 0 to 2 are in the other one
        (said,) = [row.getMessage() for row in caplog.records if stray.name in row.getMessage()]
        assert "its topic exists" in said and "rename" in said
    for path in sorted(folder.iterdir()):
        path.unlink()
    folder.rmdir()
    stray.rename(folder)
    with admin_on(tmp_path) as a:
        assert a.offset("t", -1) == 3
