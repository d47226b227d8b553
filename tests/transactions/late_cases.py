"""Dialogues about requests that were delayed on their way and arrive when the next transaction
has begun; see dialogue.py. They arrive on another connection, as through a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compat.support import Wire

if TYPE_CHECKING:
    from transactions.dialogue import Talk


@contextmanager
def late(t: Talk) -> Iterator[None]:
    """Requests inside this context arrive late."""
    present, t.wire = t.wire, Wire(t.address)
    try:
        yield
    finally:
        t.wire.close()
        t.wire = present


def late_requests_of_the_first_version(t: Talk) -> None:
    """The epoch is the same, so that only sequences show it. (A late EndTxn is not among these
    cases: docs/decisions/late-end-of-transaction.md.)"""
    producer = t.begun(0)
    t.note("first", t.produce(producer, 0, 2), t.produce(producer, 2, 1))
    t.note("end", t.end(producer, True), t.state())
    with late(t):
        t.note("between", t.produce(producer, 3))
    t.note("second", t.add(producer, 0), t.produce(producer, 3, 1))
    with late(t):
        t.note("a batch that was taken", t.produce(producer, 0, 2))
        t.note("the last that was taken", t.produce(producer, 2, 1))
        t.note("a batch beyond", t.produce(producer, 7, 1))
        t.note("another partition", t.produce(producer, 0, 1, partition=1))
        t.note("a partition is added", t.add(producer, 1))
    t.note("end", t.end(producer, False), t.state())
    t.note("seen", t.fetch(), t.fetch(index=1), t.producers())


def late_requests_of_a_producer_that_came_anew(t: Talk) -> None:
    """After an abort without a response a producer sends InitProducerId and gets another epoch."""
    t.coordinator(t.group, 0)
    old = t.begun(0)
    t.note("first", t.produce(old, 0, 2))
    error, producer_id, epoch = t.init()
    t.note("init", error, t.id_name(producer_id), epoch)
    new = producer_id, epoch
    t.note("second", t.add(new, 0), t.produce(new, 0))
    with late(t):
        t.note("produce", t.produce(old, 2))
        t.note("add", t.add(old, 1))
        t.note("offsets", t.add_offsets(old), t.commit_offsets(old, 7))
        t.note("end", t.end(old, True))
    t.note("end", t.end(new, True), t.state(), t.fetch(), t.committed())


def late_requests_of_the_second_version(t: Talk) -> None:
    t.coordinator(t.group, 0)
    old = t.begun(version=5)
    t.note("first", t.produce(old, 0, 2, version=12))
    error, producer_id, epoch = t.end(old, True, version=5)
    t.note("end", error, t.id_name(producer_id), epoch, t.state())
    new = producer_id, epoch
    with late(t):
        t.note("between", t.produce(old, 2, version=12))
    t.note("second", t.produce(new, 0, version=12))
    with late(t):
        t.note("produce", t.produce(old, 2, version=12))
        t.note("repeat", t.produce(old, 0, 2, version=12))
        t.note("another partition", t.produce(old, 0, version=12, partition=1))
        t.note("offsets", t.commit_offsets(old, 7, version=5))
        t.note("commit", t.end(old, True, version=5), t.end(old, False, version=5))
    t.note("state", t.state())
    error, producer_id, epoch = t.end(new, False, version=5)
    t.note("end", error, t.id_name(producer_id), epoch, t.state())
    t.note("seen", t.fetch(), t.fetch(index=1), t.committed())


CASES = (
    late_requests_of_the_first_version,
    late_requests_of_a_producer_that_came_anew,
    late_requests_of_the_second_version,
)
