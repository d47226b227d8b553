"""Producers without pauses: each request is sent as soon as the previous response arrives.

A client gets a retriable error while its own transaction is being completed; no other error
may reach a producer that follows the protocol. Three seconds; a minute in the long form.
"""

import random
import threading
import time

import pytest
from long_form import pick
from transactions.dialogue import SETTINGS, Talk

from barnabas import Broker

RUN_S = pick(short=3.0, long=60.0)
TRY_AGAIN = (19, 51)  # NOT_ENOUGH_REPLICAS of Produce, CONCURRENT_TRANSACTIONS
PATIENCE_S = 30


class Producer:
    """A producer with its own topic and group, and the expected state of both."""

    def __init__(self, address: str, name: str, seed: int, bumps: bool) -> None:
        self.talk = Talk(address, name)
        self.talk.coordinator(self.talk.group, 0)
        self.chance = random.Random(seed)
        self.bumps = bumps  # the protocol's second version
        self.producer = self.talk.begun(version=5 if bumps else 4)
        self.sequences = [0, 0]
        self.written = 0
        self.offset = self.committed = -1
        self.aborted = 0
        self.count = 0

    def again(self, ask):
        """Repeats a request at once while the error is retriable."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            codes = ask()
            if not set(codes) & set(TRY_AGAIN):
                assert set(codes) == {0}, f"{codes} after {self.count} transactions"
                return
            assert time.monotonic() < deadline, f"{codes} without end"

    def write(self) -> None:
        index = self.chance.randrange(2)
        talk, sequence = self.talk, self.sequences[index]
        if not self.bumps:
            self.again(lambda: talk.add(self.producer, index, settle=False))
        version = 12 if self.bumps else 9
        self.again(
            lambda: [
                talk.produce(
                    self.producer, sequence, version=version, partition=index, settle=False
                )[0]
            ]
        )
        self.sequences[index] += 1
        self.written += 1

    def note(self) -> None:
        if not self.bumps:
            self.again(lambda: [self.talk.add_offsets(self.producer)])
        self.offset += 1
        version = 5 if self.bumps else 3
        self.again(lambda: self.talk.commit_offsets(self.producer, self.offset, version))

    def transaction(self) -> None:
        steps = self.chance.choice(
            [[self.note], [self.write, self.note], [self.note, self.write, self.note], [self.write]]
        )
        before = self.offset
        for step in steps:
            step()
        commit = self.chance.random() < 0.7
        told = []

        def end():
            found = self.talk.end(self.producer, commit, 5 if self.bumps else 3, settle=False)
            told[:] = found if self.bumps else [found]
            return told[:1]

        self.again(end)
        if self.bumps:
            self.producer, self.sequences = (told[1], told[2]), [0, 0]
        if commit and self.offset != before:
            self.committed = self.offset
        self.count += 1

    def run(self, until: float) -> None:
        while time.monotonic() < until:
            self.transaction()

    def check(self) -> None:
        """Checks that no transaction is open, and that the last committed offset counts."""
        assert self.talk.state().startswith("Complete")
        assert self.talk.settled() == (0, [(0, self.committed)])
        for index in range(2):
            assert self.talk.list_offsets(1, index) == self.talk.list_offsets(0, index)


def watch(address: str, names: list[str], until: float) -> None:
    """An operator who describes every transactional id all the time."""
    talk = Talk(address, "watch")
    while time.monotonic() < until:
        for name in names:
            talk.describe(f"{name}-txn")
            time.sleep(0.002)
    talk.wire.close()


@pytest.mark.one_of("fsync", "os")
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_producers_without_a_pause_meet_no_error(tmp_path, durability):
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", **SETTINGS}
    with Broker({**settings, "log.durability": durability}) as broker:
        address = broker.bootstrap_servers
        producers = [Producer(address, f"B{at}", at, bumps=at % 4 != 3) for at in range(4)]
        failures = []
        until = time.monotonic() + RUN_S

        def carry_out(call, *given):
            try:
                call(*given)
            except BaseException as failure:
                failures.append(failure)

        names = [f"B{at}" for at in range(4)]
        threads = [
            threading.Thread(target=carry_out, args=(one.run, until)) for one in producers
        ] + [threading.Thread(target=carry_out, args=(watch, address, names, until))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        for one in producers:
            one.check()
            assert one.count > 5
            one.talk.wire.close()
