"""Workload H with an undisturbed broker, and with one that is killed repeatedly.

A failing run prints its seed and keeps its history; `BARNABAS_HISTORY_SEED` runs that seed again:
the same kills at the same moments, and the same requests of every worker.
"""

import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from durability.broker_process import BrokerProcess, free_port, starts_in_time
from history.checker import Verdict, check
from history.last_read import fetch_positions, scan, wait_until_stable
from history.model import Operation, Outcome, now
from history.workload import (
    COPY,
    INPUT,
    PARTITIONS,
    Workload,
    broker_settings,
    create_topics,
)
from long_form import pick
from oracle.exposition import Family, read_page, value_of
from tls.tls_broker import AUTHORITY, pem_settings

pytestmark = pytest.mark.takes(seconds=50)

CALM_S, SHORT_S, DONE_MIN = 6.0, 3.0, 6
KILLS, BETWEEN_KILLS_S = pick(short=2, long=6), (1.5, 4.0)
KILLS_WITH_TLS = pick(short=1, long=3)
GROUP_BACK_S_MAX = 40.0  # the session timeout of 10 s, and time for a slow machine
SINGLE = ("sender", "oldsender", "transactor", "poller")  # without a group
KINDS = (*SINGLE, "copier", "groupreader")
OLD_PRODUCE = ("1", "2")  # versions of Produce: their messages have format 0 and 1
ALL = [(topic, at) for topic in (INPUT, COPY) for at in range(PARTITIONS)]


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("BARNABAS_HISTORY_SEED", 0)) or random.SystemRandom().getrandbits(32)


def verdict_of(
    workload: Workload, tmp_path: Path, whole: bool = True, address: str | None = None
) -> Verdict:
    """Reads everything again and returns the verdict on the run. `whole`: no transaction stays
    open. `address`: of a listener without TLS, if the workload uses another one."""
    address = address or workload.address
    stable_s = wait_until_stable(address, ALL) if whole else 0.0
    for name in ("last-scan", "again"):
        scan(address, workload.history, ALL, name)
    fetch_positions(address, workload.history, "copiers", ALL[:PARTITIONS])
    fetch_positions(address, workload.history, "readers", ALL)
    saved = tmp_path / "history"
    workload.history.save(saved)
    operations = workload.history.operations()
    began = time.monotonic()
    verdict = check(operations)
    records = sum(len(one.sends) for one in operations)
    print(
        f"seed {workload.seed}: {len(operations)} operations, {records} records sent,"
        f" checked in {time.monotonic() - began:.1f} s, stable after {stable_s:.1f} s\n"
        f"{workload.tally()}"
    )
    if verdict.valid is not True:
        print(f"BARNABAS_HISTORY_SEED={workload.seed} runs it again; its history: {saved}")
    return verdict


class Listeners(NamedTuple):
    """The broker's settings, and the address and the settings of the workload's clients."""

    settings: dict[str, str]
    address: str
    clients: dict[str, str]


def plain_listener(seed: int, port: int, _: Path) -> Listeners:
    return Listeners(broker_settings(seed), f"127.0.0.1:{port}", {})


def tls_listener(seed: int, port: int, folder: Path) -> Listeners:
    """Beside the plain one at `port`, which the reads at the end use."""
    safe = f"127.0.0.1:{free_port()}"
    trusted = folder / "authority.pem"
    trusted.write_text(AUTHORITY.pem)
    settings = broker_settings(seed) | pem_settings(folder)
    settings["listeners"] = f"PLAINTEXT://127.0.0.1:{port},SSL://{safe}"
    clients = {"security.protocol": "ssl", "ssl.ca.location": str(trusted)}
    return Listeners(settings, safe, clients)


def run(
    tmp_path: Path,
    seed: int,
    faults: Callable[[BrokerProcess, Workload, Listeners], BrokerProcess],
    listening: Callable[[int, int, Path], Listeners] = plain_listener,
) -> tuple[Workload, Verdict]:
    port = free_port()
    listeners = listening(seed, port, tmp_path)
    broker = BrokerProcess(tmp_path / "data", port, listeners.settings)
    workload = None
    try:
        create_topics(broker.address)
        workload = Workload(listeners.address, seed, listeners.clients)
        broker = faults(broker, workload, listeners)
        workload.stop()
        assert workload.hangs() == 0
        return workload, verdict_of(workload, tmp_path, address=broker.address)
    finally:
        if workload is not None:
            workload.stopping.set()
        if broker.process.poll() is None:
            broker.kill()


def done(operations: list[Operation], kind: str, began: int, ended: int) -> int:
    """The answered operations of a kind of worker within a time."""
    return sum(
        1
        for one in operations
        if one.process.startswith(kind)
        and one.outcome == Outcome.OK
        and (one.sends or one.reads or one.commits)
        and one.ended is not None
        and began <= one.ended < ended
    )


def wait_until_all_go_on(
    workload: Workload,
    since: int,
    patience_s: float = GROUP_BACK_S_MAX,
    kinds: Sequence[str] = KINDS,
    count: int = 1,
) -> None:
    """Waits until each of the `kinds` has done something, `count` times, after `since`. A member
    that left while the broker was down stays in its group until its session ends."""
    deadline = time.monotonic() + patience_s
    waiting = list(kinds)
    while waiting and not workload.errors:
        operations = workload.history.operations()
        waiting = [kind for kind in waiting if done(operations, kind, since, now()) < count]
        assert not waiting or time.monotonic() < deadline, (
            f"seed {workload.seed}: {waiting} did not come back: {workload.where(waiting)}"
        )
        time.sleep(1 if waiting else 0)


def test_workload_h_on_a_broker_that_is_left_alone(tmp_path, seed):
    page: dict[str, Family] = {}

    def nothing(broker: BrokerProcess, workload: Workload, listening: Listeners) -> BrokerProcess:
        time.sleep(CALM_S)
        wait_until_all_go_on(workload, 0, count=DONE_MIN)
        port = listening.settings["metrics.port"]
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page.update(read_page(answer.read().decode()))
        return broker

    def with_metrics(seed: int, port: int, folder: Path) -> Listeners:
        listeners = plain_listener(seed, port, folder)
        return listeners._replace(settings=listeners.settings | {"metrics.port": str(free_port())})

    workload, verdict = run(tmp_path, seed, nothing, with_metrics)
    assert verdict.valid is True, f"seed {seed}\n{verdict}"
    operations = workload.history.operations()
    for kind in KINDS:
        assert done(operations, kind, 0, now()) >= DONE_MIN, f"{kind}: hardly anything was done"
    unknown = [one for one in operations if one.outcome == Outcome.UNKNOWN and one.sends]
    assert not unknown, f"seed {seed}: without a fault, {unknown[:3]}"
    requests = "kafka_network_requestmetrics_requests_total"
    for version in OLD_PRODUCE:
        assert value_of(page, requests, request="Produce", version=version) > 0
    converted = "kafka_server_brokertopicmetrics_producemessageconversions_total"
    assert value_of(page, converted, topic=INPUT) > 0


@pytest.mark.parametrize(
    ("listening", "count"), [(plain_listener, KILLS), (tls_listener, KILLS_WITH_TLS)]
)
def test_workload_h_on_a_broker_that_is_killed(tmp_path, seed, listening, count):
    """The test proves each kill, and that the workload ran before and after it."""
    chance = random.Random(f"{seed}:kills")
    moments: list[int] = []
    took: list[float] = []

    def kills(broker: BrokerProcess, workload: Workload, listeners: Listeners) -> BrokerProcess:
        since = 0
        for _ in range(count):
            time.sleep(chance.uniform(*BETWEEN_KILLS_S))
            wait_until_all_go_on(workload, since, kinds=SINGLE)
            before = broker.process.pid
            moments.append(now())
            broker.kill()
            since = now()
            assert broker.process.returncode == -9
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", broker.port), 1)
            broker = BrokerProcess(broker.data, broker.port, listeners.settings)
            assert broker.process.pid != before
            took.append(broker.ready_s)
        wait_until_all_go_on(workload, since)
        return broker

    workload, verdict = run(tmp_path, seed, kills, listening)
    print("serving after", ", ".join(f"{seconds:.2f}" for seconds in took), "s")
    assert verdict.valid is True, f"seed {seed}\n{verdict}"
    operations = workload.history.operations()
    for began, ended in zip([0, *moments], [*moments, now()], strict=True):
        for kind in SINGLE:
            assert done(operations, kind, began, ended) > 0, f"seed {seed}: no {kind} went on"
    assert starts_in_time(took, tmp_path / "empty"), took


def test_a_log_that_was_cut_is_found_out(tmp_path, seed):
    """A fault that no broker can repair: the end of a log is lost, with records that were read."""
    broker = BrokerProcess(tmp_path / "data", free_port(), broker_settings(seed))
    try:
        create_topics(broker.address)
        workload = Workload(broker.address, seed)
        time.sleep(SHORT_S)
        wait_until_all_go_on(workload, 0, kinds=SINGLE, count=DONE_MIN)
        workload.stop()
        broker.kill()
        [log] = (tmp_path / "data" / f"{INPUT}-0").glob("*.log")
        size = log.stat().st_size
        os.truncate(log, size // 2)
        broker = BrokerProcess(broker.data, broker.port, broker_settings(seed))
        # A transaction whose marker was cut off stays open.
        verdict = verdict_of(workload, tmp_path, whole=False)
    finally:
        broker.kill()
    assert verdict.valid is False
    assert {"vanished", "unseen"} & set(verdict.anomalies), verdict
    cases = [case for name in ("vanished", "unseen") for case in verdict.anomalies.get(name, ())]
    assert all(f"{INPUT}/0" in case for case in cases), verdict
