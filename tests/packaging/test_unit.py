"""etc/barnabas.service: systemd accepts it, its user exists, and a broker at work needs nothing
that it forbids."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from durability.broker_process import BrokerProcess, free_port
from waiting import soon

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "etc" / "barnabas.service"
SYSUSERS = ROOT / "etc" / "sysusers.d" / "barnabas.conf"
# Calls that may be refused, and what the broker calls then. Linux has cachestat from 6.5 on; strace
# and systemd of Debian 12 do not know it. SQLite calls fchown for root only.
REFUSED_WELL = {"cachestat": "preadv2", "syscall_0x1c3": "preadv2", "fchown": ""}
VALUE = bytes(200_000)  # a fetch sends it from the file
EXPOSURE_MAX = 20  # tenths; systemd calls a unit below 20 "OK" and one without settings 96
CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)")
OPENED = re.compile(r'"([^"]*)"')

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed (apt install systemd)"
)


def ran(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def values(name: str) -> list[str]:
    """The values of a line of the unit, in their order."""
    rows = (line.partition("=") for line in UNIT.read_text().splitlines())
    return [value for key, _, value in rows if key == name]


def with_program(tmp_path: Path, text: str) -> Path:
    """The unit with a program that exists here: verify looks for it."""
    assert text.count("/opt/barnabas/bin/barnabas") == 1
    path = tmp_path / "barnabas.service"
    path.write_text(text.replace("/opt/barnabas/bin/barnabas", shutil.which("true")))
    return path


@needs_systemd
def test_systemd_accepts_the_unit(tmp_path):
    assert (
        ran("systemd-analyze", "verify", "--man=no", with_program(tmp_path, UNIT.read_text())) == ""
    )


@needs_systemd
def test_a_line_that_systemd_does_not_know_is_found(tmp_path):
    unit = with_program(tmp_path, UNIT.read_text().replace("UMask=", "Umask="))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True
    )
    assert "Umask" in done.stdout + done.stderr


@needs_systemd
def test_the_unit_exposes_little():
    ran(
        *("systemd-analyze", "security", "--offline=yes", "--no-pager"),
        *(f"--threshold={EXPOSURE_MAX}", UNIT),
    )


@pytest.mark.skipif(
    shutil.which("systemd-sysusers") is None,
    reason="systemd is not installed (apt install systemd)",
)
def test_the_user_of_the_unit_is_the_one_that_sysusers_makes(tmp_path):
    (tmp_path / "etc").mkdir()
    ran("systemd-sysusers", f"--root={tmp_path}", "--inline", SYSUSERS.read_text().splitlines()[-1])
    [row] = (tmp_path / "etc" / "passwd").read_text().splitlines()
    name, _, _, _, _, home, shell = row.split(":")
    assert values("User") == [name] == values("Group")
    assert (home, shell) == (f"/var/lib/{values('StateDirectory')[0]}", "/usr/sbin/nologin")


def test_the_unit_waits_for_the_broker_and_for_its_stop():
    assert values("Type") == ["notify"]
    assert int(values("WatchdogSec")[0]) >= 30  # three pings; a loaded machine delays threads


# -- what a broker does, beside what the unit allows


def allowed_calls() -> set[str]:
    """The system calls that the lines SystemCallFilter leave, as systemd defines its sets."""
    sets: dict[str, list[str]] = {}
    name = ""
    for line in ran("systemd-analyze", "syscall-filter", "--no-pager").splitlines():
        if line.startswith("@"):
            name = line.strip()
            sets[name] = []
        elif line.strip() and not line.strip().startswith("#"):
            sets[name].append(line.strip())

    def members(word: str) -> set[str]:
        if not word.startswith("@"):
            return {word}
        return set().union(*(members(inner) for inner in sets[word]))

    allowed = members("@default")
    for value in values("SystemCallFilter"):
        words = value.removeprefix("~").split()
        found = set().union(*map(members, words))
        allowed = allowed - found if value.startswith("~") else allowed | found
    return allowed | members("@default")


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """The data directory of a broker that starts, serves and stops, and the name and arguments of
    each of its system calls."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    folder = tmp_path_factory.mktemp("traced")
    data, trace = folder / "data", folder / "trace"
    before = ["strace", "-D", "-f", "-qq", "-s", "8", "-o", str(trace)]
    with BrokerProcess(data, free_port(), {"metrics.port": 0}, before) as broker:
        produce_and_consume(broker.address)
        assert broker.stop() == 0
    soon(lambda: "exit_group(0)" in trace.read_text())  # strace ends after the broker
    found = map(CALL.match, trace.read_text().splitlines())
    return data, [match.groups() for match in found if match]


@pytest.fixture(scope="module")
def calls(traced):
    return traced[1]


def produce_and_consume(address: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    producer.produce("t", VALUE)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    message = consumer.poll(60)
    assert message is not None and message.value() == VALUE
    consumer.close()


@needs_systemd
def test_a_broker_makes_no_system_call_that_the_unit_forbids(calls):
    made = {name for name, _ in calls}
    assert {"epoll_wait", "fdatasync", "sendfile", "prlimit64"} <= made
    allowed = allowed_calls()
    assert made - allowed - set(REFUSED_WELL) == set()
    assert set(REFUSED_WELL.values()) <= allowed | {""}


def test_a_broker_opens_no_socket_of_a_family_that_the_unit_forbids(calls):
    allowed = set(values("RestrictAddressFamilies")[0].split())
    families = {given.split(",")[0] for name, given in calls if name == "socket"}
    assert "AF_INET" in families and families <= allowed


def test_a_broker_makes_no_memory_executable(calls):
    """MemoryDenyWriteExecute refuses a mapping to write and execute, and to execute later."""
    assert values("MemoryDenyWriteExecute") == ["yes"]
    mapped = [given for name, given in calls if name == "mmap" and "PROT_EXEC" in given]
    assert mapped  # libraries
    assert [given for given in mapped if "PROT_WRITE" in given] == []
    assert [given for name, given in calls if name == "mprotect" and "PROT_EXEC" in given] == []


def test_a_broker_writes_to_its_log_directory_alone(traced):
    """With ProtectSystem=strict everything but StateDirectory, /tmp and /dev is read-only."""
    assert values("ProtectSystem") == ["strict"] and values("StateDirectory")
    data, calls = traced
    files = [
        OPENED.search(given)[1]
        for name, given in calls
        if name == "openat" and re.search("O_WRONLY|O_RDWR|O_CREAT", given)
    ]
    assert any(path.startswith(f"{data}/t-0/") for path in files)
    elsewhere = {path for path in files if not path.startswith(f"{data}/")}
    assert {path for path in elsewhere if "__pycache__" not in path} <= {"/dev/null"}
