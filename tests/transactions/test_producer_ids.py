"""Producer ids of one node: blocks from the metadata tree, each id of a block once."""

from barnabas.coordinator.transactions.producer_ids import ProducerIds
from barnabas.metadata import znodes
from barnabas.metadata.embedded import EmbeddedTree


def test_two_nodes_in_turns_never_give_out_the_same_id(tmp_path):
    tree = EmbeddedTree(tmp_path, clock_ms=lambda: 1)
    for path in znodes.PERSISTENT_PATHS:
        tree.ensure_path(path)
    nodes = [ProducerIds(tree, 1), ProducerIds(tree, 2)]
    found = [node.next() for _ in range(2500) for node in nodes]
    tree.close()
    assert len(set(found)) == 5000
