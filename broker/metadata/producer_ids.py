"""Blocks of producer ids, allocated through `/latest_producer_id_block` as in Kafka
(ProducerIdManager).

Each broker takes one block at a time and allocates its ids from memory. When a broker stops, the
rest of its block is lost; no id is allocated twice.
"""

from __future__ import annotations

from barnabas.metadata.tree import (
    BadVersion,
    CreateNode,
    MetadataError,
    MetadataTree,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    OutcomeUnknown,
    SetData,
)
from barnabas.metadata.znodes import PRODUCER_ID_BLOCK_PATH, ProducerIdBlock

BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1
ATTEMPTS_MAX = 100


class NoProducerIds(MetadataError):
    """No block is available: all ids are used, or other brokers were faster in each attempt."""


def allocate_block(tree: MetadataTree, broker_id: int) -> ProducerIdBlock:
    """Takes the next block for this broker. A commit with an unknown outcome loses a block. Raises
    NoProducerIds, and MetadataError for other errors of the tree."""
    for _attempt in range(ATTEMPTS_MAX):
        try:
            data, stat = tree.get(PRODUCER_ID_BLOCK_PATH)
        except NoNode:
            start, version = 0, None
        else:  # empty until the first block is taken
            start = ProducerIdBlock.decode(data).block_end + 1 if data else 0
            version = stat.version
        if start > PRODUCER_ID_MAX - BLOCK_SIZE:
            raise NoProducerIds(f"no producer id is left: the next block would begin at {start}")
        block = ProducerIdBlock(broker_id, start, start + BLOCK_SIZE - 1)
        operation: Operation
        if version is None:
            operation = CreateNode(PRODUCER_ID_BLOCK_PATH, block.encode())
        else:
            operation = SetData(PRODUCER_ID_BLOCK_PATH, block.encode(), version)
        try:
            tree.multi([operation])
        except MultiFailed as failed:
            if not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                raise failed.error from None
        except OutcomeUnknown:
            pass  # read again: if the commit was done, take the next block
        else:
            return block
    raise NoProducerIds(
        f"gave up after {ATTEMPTS_MAX} attempts: each was overtaken by a change of another broker"
    )
