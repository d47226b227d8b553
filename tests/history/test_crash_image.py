"""Workload H, while copies of the disk are taken: each has what a power cut at that moment would
leave. The broker goes on. Afterwards a broker starts on each copy, and the checker compares what it
has with what was acknowledged before the copy.

For a copy the broker is stopped (SIGSTOP) for as long as it takes; what its file system has not
written is not in it.
"""

import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cluster.disks import Disk
from cluster.disks import missing as no_disk
from confluent_kafka import KafkaError, KafkaException
from durability.broker_process import BrokerProcess, free_port
from history.checker import Verdict
from history.last_read import ends
from history.model import History, Operation, Outcome, Send, now
from history.test_power_cut import assert_sound, disk, started
from history.test_workload_h import ALL, KINDS, done, seed, verdict_of, wait_until_all_go_on
from history.workload import BROKER_SETTINGS, Workload, create_topics
from long_form import LONG, pick
from waiting import pause

from barnabas import Broker

__all__ = ["disk", "seed"]  # fixtures
pytestmark = [
    pytest.mark.takes(seconds=12),
    pytest.mark.skipif(no_disk() is not None, reason=no_disk() or ""),
]

IMAGES = pick(short=2, long=20)
PAUSE_S_MAX = 1.0
QUIET_S = 0.5
# With os, images must lack records: so the checker sees it when they do.
FORMS = pick(short=[("fsync", True)], long=[("fsync", True), ("os", False)])
TRANSACTION_S = 20  # the timeout of the workload's transactions


class HistoryOfImage(History):
    """What a transaction in doubt has read may not be in the image either: its reads count only
    with its records."""

    def operations(self) -> list[Operation]:
        found = super().operations()
        there = {read.value for one in found if one.scan for read in one.reads}
        return [
            replace(one, reads=())
            if one.outcome == Outcome.UNKNOWN and not any(send.value in there for send in one.sends)
            else one
            for one in found
        ]


@dataclass
class Cut:
    """A workload as verdict_of() takes it: what was done until a moment."""

    address: str
    seed: int
    history: History

    def tally(self) -> str:
        return ""


@dataclass(frozen=True)
class Instant:
    """The moment of an image, as two times: what was answered before `asked` is acknowledged, and
    what began after `stopped` is not in the image. The broker stopped between them."""

    asked: int
    stopped: int


def stop(broker: BrokerProcess) -> Instant:
    """Stops all threads of a broker."""
    asked = now()
    pause(broker.process.pid)
    return Instant(asked, now())


def images(
    broker: BrokerProcess, disk: Disk, folder: Path, chance: random.Random, made: list[Disk]
) -> list[Instant]:
    """Takes IMAGES copies at random moments, each added to `made`. Returns their moments."""
    times = []
    while len(times) < IMAGES:
        time.sleep(chance.uniform(0, PAUSE_S_MAX))
        at = stop(broker)
        try:
            made.append(disk.copied(folder / f"image-{len(times)}"))
        finally:
            broker.process.send_signal(signal.SIGCONT)
        times.append(at)
    return times


def until(operations: list[Operation], at: Instant) -> list[Operation]:
    """What was known at a moment: later answers are unknown."""
    found = []
    for one in operations:
        if one.began >= at.stopped:
            continue
        if one.ended is not None and one.ended < at.asked or one.outcome == Outcome.FAIL:
            found.append(one)
        elif one.sends or one.commits:
            sends = tuple(in_doubt(send) for send in one.sends)
            known = {"outcome": Outcome.UNKNOWN, "ended": None}
            found.append(replace(one, sends=sends, **known))
    return found


def in_doubt(send: Send) -> Send:
    outcome = Outcome.UNKNOWN if send.outcome == Outcome.OK else send.outcome
    return replace(send, offset=None, outcome=outcome)


def wait_until_nothing_ends(address: str) -> None:
    """Waits for the markers of transactions that the coordinators complete after their start, also
    in partitions of which no record was flushed."""
    last, deadline = None, time.monotonic() + 30
    while (found := ends(address, ALL)) != last:
        assert time.monotonic() < deadline, found
        last = found
        time.sleep(QUIET_S)


def is_whole(image: Disk, known: list[Operation], seed: int, folder: Path) -> bool:
    """Returns whether an image lacks nothing. Otherwise the checker has found a loss, or a reader
    was told that the log begins later."""
    try:
        verdict = verdict_on(image, known, seed, folder)
    except KafkaException as error:
        assert error.args[0].code() == KafkaError._AUTO_OFFSET_RESET, error
        print(f"image {image.folder.name}: {error}")
        return False
    print(f"image {image.folder.name}: {verdict}")
    lost = {"lost-write", "unseen", "vanished"} & set(verdict.anomalies)
    assert verdict.valid is True or lost, verdict
    return verdict.valid is True


def verdict_on(image: Disk, known: list[Operation], seed: int, folder: Path) -> Verdict:
    assert_sound(image)
    given = {"log.dirs": str(image.folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
    folder.mkdir()
    with Broker(given | BROKER_SETTINGS | {"log.durability": "fsync"}) as broker:
        broker.clock.advance(seconds=TRANSACTION_S + 1)
        wait_until_nothing_ends(broker.bootstrap_servers)
        return verdict_of(Cut(broker.bootstrap_servers, seed, HistoryOfImage(known)), folder)


@pytest.mark.parametrize(("durability", "is_valid"), FORMS)
def test_each_image_has_what_was_acknowledged_before_it(tmp_path, disk, seed, durability, is_valid):
    broker = started(disk, free_port(), durability)
    copies: list[Disk] = []
    try:
        create_topics(broker.address)
        if durability == "os":
            disk.flush()
        workload = Workload(broker.address, seed)
        try:
            wait_until_all_go_on(workload, 0)
            times = images(broker, disk, tmp_path, random.Random(f"{seed}:images"), copies)
            if LONG:
                wait_until_all_go_on(workload, times[-1].stopped)
            workload.stop()
        finally:
            workload.stopping.set()
            broker.kill()
        operations = workload.history.operations()
        for number, (at, image) in enumerate(zip(times, copies, strict=True)):
            known = until(operations, at)
            for kind in KINDS:
                count = done(known, kind, 0, at.asked)
                assert count > 0, f"seed {seed}: no {kind} before the image"
            whole = is_whole(image, known, seed, tmp_path / f"history-{number}")
            assert whole == is_valid, f"seed {seed}, image {number}"
    finally:
        with suppress(ProcessLookupError):
            broker.kill()
        for image in copies:
            image.remove()
