"""A simulated cluster loses no acknowledged record, and planted bugs are found."""

import os
import random
import time

import pytest
from simulation import broker as simulated_broker
from simulation.run import simulated

from barnabas.controller import elections
from barnabas.metadata.tree import ANY_VERSION
from barnabas.server import isr

pytestmark = pytest.mark.takes(seconds=60)

KNOWN_SEEDS = (*range(1, 61), 5230)
FRESH_S = 600
PLANTED_SEEDS = 60


def check(seed):
    world, violation = simulated(seed)
    assert violation is None, f"seed {seed}: {violation}\n" + "\n".join(world.trace[-100:])


def test_known_seeds():
    """The seeds include those that have found bugs."""
    for seed in KNOWN_SEEDS:
        check(seed)


@pytest.mark.only_long(reason="a seed that finds a new bug would stop an unrelated change")
def test_fresh_seeds():
    end = time.monotonic() + FRESH_S
    while time.monotonic() < end:
        check(int.from_bytes(os.urandom(4)))


def test_a_seed_repeats_exactly():
    seed = random.randrange(1 << 32)
    first, second = simulated(seed)[0], simulated(seed)[0]
    assert first.trace == second.trace
    assert first.counts == second.counts
    assert first.counts["acknowledged"] > 0


def found(planted: str) -> int:
    """Returns the first seed that finds the planted bug."""
    for seed in range(1, PLANTED_SEEDS + 1):
        if simulated(seed)[1] is not None:
            return seed
    raise AssertionError(f"no seed has found: {planted}")


def test_an_isr_that_is_written_without_its_version_is_found(monkeypatch):
    """The leader overwrites a decision that the controller has made since."""
    operation = isr.Change.operation.fget
    monkeypatch.setattr(
        isr.Change,
        "operation",
        property(lambda change: operation(change).__class__(
            operation(change).path, operation(change).data, ANY_VERSION)),
    )  # fmt: skip
    assert found("a write of the ISR that checks no version")


def test_a_restarted_member_of_the_isr_that_counts_as_steady_is_found(monkeypatch):
    """The member may have lost records that were not flushed (KIP-903)."""

    def steady(partition, brokers):
        state = partition.state
        return [] if state is None else [one for one in state.isr if one in brokers]

    monkeypatch.setattr(elections, "steady", steady)
    assert found("an election of a broker that has restarted")


def test_a_follower_with_the_epoch_of_a_former_registration_is_found(monkeypatch):
    """The simulation found this bug: such a follower never joined an ISR again."""
    epochs = {}

    def first_epoch(broker):
        own = broker.reader.state.brokers.get(broker.node_id)
        return epochs.setdefault((broker, broker.life), -1 if own is None else own.epoch)

    monkeypatch.setattr(simulated_broker.SimBroker, "_own_epoch", first_epoch)
    assert found("a fetcher with an old broker epoch")
