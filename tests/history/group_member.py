"""A member of a group that commits increasing positions; its test pauses and continues it.

It prints lines of JSON: "joining"; "assigned" with its generation and its
partitions; "refused" with the error of a commit; and each commit and fetch of positions as an
operation of a history. A member that learns of its removal commits once more with its old
generation, like a consumer that does not know yet. It ends when its standard input ends.

    python -m history.group_member ADDRESSES GROUP TOPIC PARTITIONS NAME SESSION_MS

ADDRESSES, with commas, are of brokers that it asks for the coordinator of its group."""

import itertools
import json
import sys
import threading
from dataclasses import asdict
from typing import Any

from compat.support import Wire
from history.model import Operation, Outcome, now

from barnabas.wire import request

LOADING, UNAVAILABLE, NOT_COORDINATOR = 14, 15, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, ID_REQUIRED = 22, 25, 27, 79
REFUSALS = (LOADING, UNAVAILABLE, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE)
PAUSE_S = 0.02


def say(kind: str, **more: Any) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **more}) + "\n")
    sys.stdout.flush()


class GroupMember:
    def __init__(
        self, addresses: str, group: str, topic: str, partitions: int, name: str, session_ms: int
    ) -> None:
        self.addresses = itertools.cycle(addresses.split(","))
        self.group, self.topic, self.name = group, topic, name
        self.partition_count, self.session_ms = partitions, session_ms
        self.member = ""
        self.generation = -1  # -1: it must join
        self.positions: dict[int, int] = {}
        self.wire: Wire | None = None
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.wait(PAUSE_S):
            try:
                if self.wire is None:
                    self.wire = self.coordinator()
                elif self.generation < 0:
                    self.join()
                else:
                    self.commit()
                    self.heartbeat()
            except OSError:
                self.wire = None

    def coordinator(self) -> Wire | None:
        """A connection to the coordinator that one broker names; None when it knows none. The
        question creates the coordinator's topic."""
        with Wire(next(self.addresses)) as wire:
            body = request(10).cls(coordinatorKeys=[self.group], keyType=0)
            [told] = wire.call(10, 4, body).coordinators
        return None if told.errorCode else Wire(f"{told.host}:{told.port}")

    def call(self, key: int, version: int, **fields: Any) -> Any:
        assert self.wire is not None
        return self.wire.call(key, version, request(key).cls(groupId=self.group, **fields))

    # -- membership -----------------------------------------------------------------------------

    def join(self) -> None:
        say("joining")
        protocol = request(11).struct("protocols")(name="by-number", metadata=b"")
        told = self.call(
            11, 5, sessionTimeoutMs=self.session_ms, rebalanceTimeoutMs=10_000,
            memberId=self.member, protocolType="consumer", protocols=[protocol],
        )  # fmt: skip
        if told.errorCode in (UNAVAILABLE, NOT_COORDINATOR):
            self.wire = None
        elif told.errorCode == ID_REQUIRED:
            self.member = told.memberId
        elif told.errorCode == UNKNOWN_MEMBER:
            self.member = ""
        if told.errorCode:
            return
        self.member = told.memberId
        rows = []
        if told.leader == self.member:
            row = request(14).struct("assignments")
            names = sorted(one.memberId for one in told.members)
            for at, name in enumerate(names):
                mine = list(range(at, self.partition_count, len(names)))
                rows.append(row(memberId=name, assignment=json.dumps(mine).encode()))
        synced = self.call(
            14, 3, generationId=told.generationId, memberId=self.member, assignments=rows
        )
        if synced.errorCode == UNKNOWN_MEMBER:
            self.member = ""
        if synced.errorCode == 0:
            self.begin(told.generationId, json.loads(bytes(synced.assignment)))

    def begin(self, generation: int, partitions: list[int]) -> None:
        say("assigned", generation=generation, partitions=partitions)
        began = now()
        row = request(9).struct("topics")(name=self.topic, partitionIndexes=partitions)
        told = self.call(9, 5, topics=[row])
        rows = {one.partitionIndex: one for topic in told.topics for one in topic.partitions}
        if told.errorCode or any(one.errorCode for one in rows.values()):
            return  # the coordinator moved: join again
        found = {at: one.committedOffset for at, one in rows.items()}
        self.note(began, positions={at: n if n >= 0 else None for at, n in found.items()})
        self.positions = {at: max(n, 0) for at, n in found.items()}
        self.generation = generation

    def heartbeat(self) -> None:
        told = self.call(12, 3, generationId=self.generation, memberId=self.member)
        if told.errorCode in (ILLEGAL_GENERATION, UNKNOWN_MEMBER):
            self.commit()
            self.member = ""
        if told.errorCode in (ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE):
            self.generation = -1
        elif told.errorCode in (UNAVAILABLE, NOT_COORDINATOR):
            self.wire = None

    # -- commits --------------------------------------------------------------------------------

    def commit(self) -> None:
        for at in self.positions:
            self.positions[at] += 1
        row = request(8).struct("topics.partitions")
        rows = [row(partitionIndex=at, committedOffset=n) for at, n in self.positions.items()]
        topic = request(8).struct("topics")(name=self.topic, partitions=rows)
        began, outcome = now(), Outcome.UNKNOWN
        try:
            told = self.call(
                8, 7, generationIdOrMemberEpoch=self.generation, memberId=self.member,
                topics=[topic],
            )  # fmt: skip
            codes = {one.errorCode for found in told.topics for one in found.partitions}
            if codes <= {0}:
                outcome = Outcome.OK
            elif codes <= set(REFUSALS):
                outcome = Outcome.FAIL
                say("refused", code=max(codes), generation=self.generation)
        finally:
            self.note(began, outcome, commits=dict(self.positions))

    def note(self, began: int, outcome: Outcome = Outcome.OK, **rows: dict) -> None:
        named = {
            kind: {f"{self.topic}/{at}": n for at, n in found.items()}
            for kind, found in rows.items()
        }
        ended = None if outcome == Outcome.UNKNOWN else now()
        made = Operation(
            process=self.name, began=began, ended=ended, outcome=outcome, group=self.group, **named
        )
        say("operation", operation=asdict(made))


def main(
    addresses: str, group: str, topic: str, partitions: str, name: str, session_ms: str
) -> None:
    member = GroupMember(addresses, group, topic, int(partitions), name, int(session_ms))
    thread = threading.Thread(target=member.run)
    thread.start()
    sys.stdin.read()
    member.ending.set()
    thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
