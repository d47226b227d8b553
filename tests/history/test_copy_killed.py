"""A program that copies in transactions is killed repeatedly between its writes and EndTxn.

Its open transaction is aborted after its timeout, or by its successor; readers continue; at the end
the copy equals the input: every record once, in order. The long form kills it fifty times.
`BARNABAS_HISTORY_SEED` runs a seed again.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from durability.broker_process import BrokerProcess, free_port
from history.checker import check
from history.copy_client import GROUP
from history.last_read import ends, fetch_positions, scan, wait_until_stable
from history.model import History, Operation, Outcome, now, parse
from history.workload import (
    COPY,
    INPUT,
    PARTITIONS,
    Burst,
    Producer,
    broker_settings,
    create_topics,
)
from long_form import pick

pytestmark = pytest.mark.takes(seconds=26)

KILLS = pick(short=4, long=50)
KINDS = ("open", "open", "open", "deciding")  # what a client has said before its kill
MORE = 5  # transactions
BURSTS_MIN, BURST = 12, 60
VALUES = 1_000_000  # of each client
# Of transactions: of one whose abort by the coordinator is waited for, and of the others.
SHORT_MS, LONG_MS = 3000, 20_000
ABORTED_S_MAX = SHORT_MS / 1000 + 8.0
SAYS_S_MAX = 60.0
INPUTS = [(INPUT, at) for at in range(PARTITIONS)]
COPIES = [(COPY, at) for at in range(PARTITIONS)]
TESTS = Path(__file__).resolve().parents[1]


class CopyClient:
    """The program, and its output."""

    def __init__(
        self, address: str, number: int, seed: int, timeout_ms: int = LONG_MS, held: int = 0
    ) -> None:
        self.rows: list[dict] = []
        self._said = threading.Condition()
        command = [sys.executable, "-m", "history.copy_client", address]
        self.process = subprocess.Popen(
            [*command, str(number * VALUES), f"{seed}:{number}", str(timeout_ms), str(held)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(TESTS)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._said:
                self.rows.append(json.loads(line))
                self._said.notify_all()

    def wait_for(self, kind: str, count: int) -> None:
        def enough() -> bool:
            return sum(row["kind"] == kind for row in self.rows) >= count

        with self._said:
            assert self._said.wait_for(enough, SAYS_S_MAX), f"no {count} x {kind}: {self.rows[-2:]}"

    def kill(self) -> str:
        """kill -9. Returns the last line of its output."""
        self.process.kill()
        assert self.process.wait(20) == -9
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.rows[-1]["kind"] if self.rows else ""

    def operations(self) -> list[Operation]:
        """The operations of the program; the outcome of the last one depends on its last step."""
        found, open_ = [], None
        for row in self.rows:
            if row["kind"] == "deciding":
                assert open_ is not None
                open_ = replace(open_, outcome=Outcome.UNKNOWN, deciding=row["at"])
            elif row["kind"] == "open":
                open_ = parse(row["operation"])
            elif row["kind"] != "aborting":
                found.append(parse(row["operation"]))
                open_ = None
        return found + ([open_] if open_ is not None else [])


def fill_input(address: str, history: History, bursts: int) -> None:
    """Records, every third burst of them in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "filler"})
    producer.init_transactions(30)
    for at in range(bursts):
        began, burst = now(), Burst()
        producer.begin_transaction()
        for number in range(BURST):
            burst.send(producer, INPUT, number % PARTITIONS, history.new_value())
        producer.flush(30)
        deciding = now()
        end, outcome = producer.commit_transaction, Outcome.OK
        if at % 3 == 2:
            end, outcome = producer.abort_transaction, Outcome.FAIL
        end(30)
        sends = burst.sends(transactional=True)
        history.add(
            Operation(
                process="filler", began=began, ended=now(), outcome=outcome, sends=sends,
                transactional=True, deciding=deciding,
            )
        )  # fmt: skip


def copied_to_the_end(address: str) -> bool:
    """Whether the position of the copier is at the end of the input, but for markers."""
    throwaway = History()
    fetch_positions(address, throwaway, GROUP, INPUTS)
    [fetch] = throwaway.operations()
    scan(address, throwaway, INPUTS, "input")
    last: dict[str, int] = {}
    for one in throwaway.operations():
        last |= {read.partition: read.offset + 1 for read in one.reads}
    return all(fetch.positions[name] == end for name, end in last.items())


def kill_again_and_again(address: str, tmp_path: Path, seed: int, kills: int) -> None:
    """Copies the topic INPUT of the broker or cluster, which is empty, to COPY."""
    chance = random.Random(f"{seed}:client-kills")
    history, last_said, waited = History(), [], []
    client = None
    try:
        fill_input(address, history, max(BURSTS_MIN, kills))
        kinds = [KINDS[number % len(KINDS)] for number in range(kills)]
        chance.shuffle(kinds)
        for number, kind in enumerate(kinds, 1):
            is_held, count = kind == "open" and number % 3 == 1, chance.randint(1, 3)
            # The others go on beside the kill, but do not copy everything before a late one. One
            # transaction of five has no decision.
            last = count + MORE if kind == "open" else (count + 1) * MORE
            held = (SHORT_MS, count) if is_held else (LONG_MS, last)
            client = CopyClient(address, number, seed, *held)
            client.wait_for(kind, count)
            last_said.append(client.kill())
            for one in client.operations():
                history.add(one)
            if is_held:
                # The fault has an effect: readers must wait. It ends without help.
                found, began = ends(address, COPIES), client.operations()[-1].began
                is_late = now() > began + SHORT_MS * 1_000_000
                assert is_late or any(stable < high for stable, high in found.values()), found
                waited.append(wait_until_stable(address, COPIES))
        client = CopyClient(address, kills + 1, seed)
        deadline = time.monotonic() + SAYS_S_MAX
        while not copied_to_the_end(address):
            assert time.monotonic() < deadline, "the copy does not come to its end"
            time.sleep(0.3)
        client.kill()
        for one in client.operations():
            history.add(one)
        wait_until_stable(address, COPIES)
        scan(address, history, INPUTS + COPIES, "last-scan")
        fetch_positions(address, history, GROUP, INPUTS)
        assert copied_to_the_end(address)
    finally:
        history.save(tmp_path / "history")
        if client is not None and client.process.poll() is None:
            client.kill()
    verdict = check(history.operations())
    print(f"seed {seed}: killed when last said {last_said}; aborted by itself after {waited} s")
    assert verdict.valid is True, f"seed {seed}, history {tmp_path / 'history'}\n{verdict}"
    assert last_said.count("open") >= kills // 4, f"seed {seed}: {last_said}"
    assert all(seconds < ABORTED_S_MAX for seconds in waited)


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("BARNABAS_HISTORY_SEED", 0)) or random.SystemRandom().getrandbits(32)


def test_a_copier_killed_before_its_end_copies_everything_once(tmp_path, seed):
    broker = BrokerProcess(tmp_path / "data", free_port(), broker_settings(seed))
    try:
        create_topics(broker.address)
        kill_again_and_again(broker.address, tmp_path, seed, KILLS)
    finally:
        broker.kill()
