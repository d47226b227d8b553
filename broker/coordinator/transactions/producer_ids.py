"""Producer ids for this node: blocks of 1000 from the metadata tree, allocated one by one.

The unused ids of a block are lost when the node stops. Ids have 63 bits, so this does not matter.
"""

import threading

from barnabas.metadata.producer_ids import allocate_block
from barnabas.metadata.tree import MetadataTree


class ProducerIds:
    """The producer ids of one node (Kafka: ProducerIdManager)."""

    def __init__(self, tree: MetadataTree, node_id: int) -> None:
        self._tree = tree
        self._node_id = node_id
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0  # the first id after the block

    def next(self) -> int:
        """Returns an unused producer id. Raises MetadataError when the tree gives no block."""
        with self._lock:
            if self._next == self._end:
                block = allocate_block(self._tree, self._node_id)
                self._next, self._end = block.block_start, block.block_end + 1
            self._next += 1
            return self._next - 1
