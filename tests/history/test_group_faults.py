"""A group whose member is paused past its session, and whose broker is killed during a rebalance.

No partition has two owners in one generation, a removed member commits nothing, and committed
positions never go back. `BARNABAS_HISTORY_SEED` runs the moments of a seed again.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import waiting
from compat.support import Wire, create_topic
from durability.broker_process import BrokerProcess, free_port
from history.checker import check
from history.group_member import ILLEGAL_GENERATION, UNKNOWN_MEMBER
from history.model import Operation, Outcome, now, parse
from waiting import soon

from barnabas.wire import request

GROUP, TOPIC, PARTITIONS = "g", "t", 5
MEMBERS = 3
SESSION_MS = 1500
SETTINGS = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
}
WORK_S = 0.4
READ_S = 0.05  # for a thread to read what has arrived
COMMITS_MIN = 20 * MEMBERS
REBALANCES_FREE_MAX, REBALANCES_STRUCK_MAX = 4, 6
TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("BARNABAS_HISTORY_SEED", 0)) or random.SystemRandom().getrandbits(32)


class Member:
    """The program, and its output."""

    def __init__(self, address: str, number: int) -> None:
        self.rows: list[dict] = []
        self.name = f"member-{number}"
        command = [sys.executable, "-m", "history.group_member", address, GROUP, TOPIC]
        self.process = subprocess.Popen(
            [*command, str(PARTITIONS), self.name, str(SESSION_MS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(TESTS)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.rows.append(json.loads(line))

    def of(self, *kinds: str) -> list[dict]:
        return [row for row in list(self.rows) if row["kind"] in kinds]

    def generation(self) -> int:
        """The generation of its assignment; -1 while it joins."""
        last = self.of("joining", "assigned")[-1:]
        return last[0]["generation"] if last and last[0]["kind"] == "assigned" else -1

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        if not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            assert self.process.wait(20) == 0
        finally:
            self.process.kill()
            self._reader.join(10)
            self.process.stdout.close()


def commits_of(member: Member) -> int:
    rows = [row["operation"] for row in member.of("operation")]
    return sum(1 for row in rows if row["commits"] and row["outcome"] == Outcome.OK)


def share(members: list[Member]) -> int:
    """Waits until exactly these members own all partitions. Returns the generation."""

    def is_shared() -> bool:
        generations = {member.generation() for member in members}
        if len(generations) != 1 or -1 in generations:
            return False
        owned = [at for member in members for at in member.of("assigned")[-1]["partitions"]]
        return sorted(owned) == list(range(PARTITIONS))

    soon(is_shared, f"{[member.name for member in members]} share nothing")
    return members[0].generation()


def pause_past_the_session(member: Member, others: list[Member], chance: random.Random) -> None:
    """The others continue without it; its commits after the pause are refused."""
    pause(member)
    before = member.generation()
    while before < 0:  # a pause before this one may have made it join
        member.process.send_signal(signal.SIGCONT)
        share([member, *others])
        pause(member)
        before = member.generation()
    after = share(others)
    assert after > before
    known = len(member.rows)
    time.sleep(chance.uniform(0, 0.3))
    member.process.send_signal(signal.SIGCONT)

    def refused() -> list[dict]:
        return [row for row in member.rows[known:] if row["kind"] == "refused"]

    told = soon(refused, "it is not told that it is out")[0]
    assert told["generation"] == before
    assert told["code"] in (ILLEGAL_GENERATION, UNKNOWN_MEMBER)


def pause(member: Member) -> None:
    """Returns when no thread of it runs, and its output has arrived."""
    assert member.process.stdout is not None
    waiting.pause(member.process.pid)
    soon(lambda: not select.select([member.process.stdout], [], [], 0)[0], "it is not read")
    time.sleep(READ_S)


def kill_during_a_rebalance(
    addresses: str, kill: Callable[[], object], members: list[Member], is_held: bool
) -> bool:
    """Returns whether members were joining when their coordinator was killed. A new member makes
    them join. `is_held`: one of the others is paused, so that they still do."""
    before = {one: len(one.of("joining")) for one in members}
    if is_held:
        pause(members[0])
    members.append(Member(addresses, len(members)))
    # Not whether one is joining now: a rebalance may end between two checks.
    soon(lambda: any(len(one.of("joining")) > n for one, n in before.items()), "nobody joins")
    kill()
    members[0].process.send_signal(signal.SIGCONT)
    time.sleep(READ_S)  # their output from before the kill has arrived
    return any(one.generation() < 0 for one in members)


def went_back(operations: list[Operation]) -> list[str]:
    """Fetched positions below positions that had been committed before."""
    found = []
    for fetch in operations:
        for partition, position in fetch.positions.items():
            before = [
                one.commits[partition]
                for one in operations
                if one.outcome == Outcome.OK
                and partition in one.commits
                and one.ended is not None
                and one.ended < fetch.began
            ]
            if max(before, default=-1) > (-1 if position is None else position):
                found.append(f"{fetch.process} found {position} in {partition}: {max(before)}")
    return found


def owners(members: list[Member]) -> dict[tuple[int, int], list[str]]:
    """The owners of each generation and partition."""
    found: dict[tuple[int, int], list[str]] = {}
    for member in members:
        for row in member.of("assigned"):
            for partition in row["partitions"]:
                found.setdefault((row["generation"], partition), []).append(member.name)
    return found


def last_positions(address: str) -> Operation:
    ask, began = request(9), now()
    row = ask.struct("topics")(name=TOPIC, partitionIndexes=list(range(PARTITIONS)))
    with Wire(address) as wire:
        told = wire.call(9, 5, ask.cls(groupId=GROUP, topics=[row]))
    assert told.errorCode == 0
    rows = told.topics[0].partitions
    positions = {f"{TOPIC}/{one.partitionIndex}": one.committedOffset for one in rows}
    return Operation(process="last", began=began, ended=now(), group=GROUP, positions=positions)


def disturb(
    addresses: str,
    seed: int,
    members: list[Member],
    kill: Callable[[], object],
    start: Callable[[], object],
) -> list[Operation]:
    """Pauses a member past its session, and has the coordinator killed in a rebalance. Returns what
    the members, which are added to `members`, have done. `kill` ends the coordinator, `start`
    starts it again."""
    chance = random.Random(f"{seed}:group")
    members += [Member(addresses, at) for at in range(MEMBERS)]
    share(members)
    time.sleep(WORK_S)
    paused = chance.choice(members)
    pause_past_the_session(paused, [one for one in members if one is not paused], chance)
    share(members)
    struck = 0
    for number in range(REBALANCES_STRUCK_MAX):
        time.sleep(chance.uniform(0, WORK_S))
        is_held = number >= REBALANCES_FREE_MAX  # their rebalances are too short for this machine
        struck += kill_during_a_rebalance(addresses, kill, members, is_held)
        start()
        share(members)
        if struck:
            break
    assert struck, f"seed {seed}: no rebalance was struck"
    time.sleep(WORK_S)
    soon(lambda: sum(map(commits_of, members)) > COMMITS_MIN, "hardly anything was done")
    for member in members:
        member.end()
    rows = [row for member in members for row in member.of("operation")]
    return [parse(json.dumps(row["operation"])) for row in rows]


def assert_sound(seed: int, members: list[Member], operations: list[Operation]) -> None:
    """No partition has two owners in a generation, and no position goes back. The last operation
    has the positions at the end."""
    twice = {at: names for at, names in owners(members).items() if len(set(names)) > 1}
    assert not twice, f"seed {seed}: owned twice: {twice}"
    assert not went_back(operations), f"seed {seed}"
    verdict = check(operations)
    assert not verdict.anomalies, f"seed {seed}\n{verdict}"
    done = [one for one in operations if one.commits and one.outcome == Outcome.OK]
    assert len(done) > COMMITS_MIN
    assert all(position for position in operations[-1].positions.values())


def test_a_group_whose_member_is_paused_and_whose_broker_is_killed_in_a_rebalance(tmp_path, seed):
    broker = BrokerProcess(tmp_path / "data", free_port(), SETTINGS)
    members: list[Member] = []

    def start() -> None:
        nonlocal broker
        broker = BrokerProcess(broker.data, broker.port, SETTINGS)

    try:
        create_topic(broker.address, TOPIC, PARTITIONS)
        operations = disturb(broker.address, seed, members, lambda: broker.kill(), start)
        operations.append(last_positions(broker.address))
    finally:
        for member in members:
            member.process.kill()
        if broker.process.poll() is None:
            broker.kill()
    assert_sound(seed, members, operations)


def test_a_position_that_goes_back_is_found():
    """Tests the check with the history of a broker that accepts a commit of a removed member."""

    def op(began, **more):
        return Operation(process="p", began=began, ended=began + 1, group=GROUP, **more)

    sound = [op(0, commits={"t/0": 5}), op(10, positions={"t/0": 5}), op(20, commits={"t/0": 6})]
    assert not went_back(sound)
    assert went_back([*sound, op(30, commits={"t/0": 4}), op(40, positions={"t/0": 4})])
    assert went_back([*sound, op(30, positions={"t/0": None})])
