"""The garbage collector may free the parts of a broker in any order."""

import gc
import os
import weakref

import pytest

from barnabas.cext.log.log_handle import LogHandle
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable


class Witness:
    """Goes with the cycle that it is in."""


@pytest.fixture(autouse=True)
def collected_when_asked():
    """What a test makes stays in the youngest generation until it asks for a collection: to visit
    the rest of the session takes long."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("handle_first", [True, False])
def test_a_table_in_a_cycle_goes_while_its_commits_are_still_there(tmp_path, handle_first):
    """Its directory's group commit was destroyed first, and the table waited for its lock without
    end."""
    for number in range(50):
        directory = tmp_path / f"{number}" / "t-0"
        directory.mkdir(parents=True)
        system, epochs = SystemCalls(), Epochs()
        table = PartitionTable(system, epochs, node_id=1)
        commit = table.add_directory(str(directory.parent))
        table.add_topic("t", os.urandom(16))
        log = LogHandle.open(
            str(directory), system=system, epochs=epochs, cache=SegmentCache(), clean=True
        )
        partition = table.add_partition("t", 0, log, directory=str(directory.parent))
        parts = [partition, log, table, system, epochs, commit]
        if not handle_first:
            parts.reverse()
        table.close()
        log.close()
        witness = Witness()
        witness.parts = parts
        witness.itself = witness
        gone = weakref.ref(witness)
        del witness, parts, partition, log, table, system, epochs, commit
        gc.collect(0)
        assert gone() is None
