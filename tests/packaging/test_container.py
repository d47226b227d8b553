"""The image of etc/container: its settings for two listeners, its health check, and its files."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cluster.network import Network, missing
from durability.broker_process import BrokerProcess, free_port

from barnabas import Broker
from barnabas.config.environment import settings_from

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "etc" / "container"
CONTAINERFILE = (FOLDER / "Containerfile").read_text()
# Prints the brokers that a bootstrap server names, and produces a record to them.
CLIENT = """
import json, sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "message.timeout.ms": int(sys.argv[2])})
brokers = producer.list_topics(timeout=20).brokers.values()
outcome = []
producer.produce("news", b"value", on_delivery=lambda error, _: outcome.append(str(error or "")))
producer.flush(30)
print(json.dumps([[f"{row.host}:{row.port}" for row in brokers], outcome]))
"""
# Gives a client its own /etc/hosts, as a container engine does.
WITH_HOSTS = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
IN_TIME_MS, LOST_MS = 20_000, 2000
USER = 10001
ENV = r"(?s)\nENV (.*?)\nEXPOSE"
# What a container engine does before it starts the entry point.
IN_ROOT = """
mount --bind "$2" "$1/var/lib/barnabas" && mount --bind /dev "$1/dev" &&
mount --bind /proc "$1/proc" && root=$1 && shift 2 &&
exec /usr/sbin/chroot --userspec=10001:10001 --groups= "$root" "$@"
"""
IMAGE_BYTES_MAX = 150_000_000


def variables() -> dict[str, str]:
    """The variables of two-listeners.env, as a container engine reads them."""
    rows = (FOLDER / "two-listeners.env").read_text().splitlines()
    return dict(row.split("=", 1) for row in rows if not row.startswith("#"))


def settings() -> dict[str, str]:
    """The settings that the broker reads from these variables."""
    found = settings_from(variables())
    assert len(found) == len(variables()) > 3
    return {name: value for name, (value, _variable) in found.items()}


def addresses(listeners: str) -> dict[str, tuple[str, str]]:
    """Host and port by name of the listener."""
    return {
        name: (host, port) for name, host, port in re.findall(r"(\w+)://([\w.]+):(\d+)", listeners)
    }


def health_check(*prefix: str) -> int:
    """Runs the health check of the image with this Python; returns its status."""
    command = json.loads(re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", CONTAINERFILE, re.M)[1])
    assert command[0] == "/usr/bin/python3"
    return subprocess.run(
        [*prefix, sys.executable, *command[1:]], stderr=subprocess.DEVNULL, timeout=20
    ).returncode


class Client:
    """A client on a host of the network that knows the broker by one name."""

    def __init__(self, network: Network, host: str, name: str, folder: Path) -> None:
        self.name = name
        self._hosts = folder / f"hosts-of-{host}"
        self._hosts.write_text(f"{network.address('broker')} {name}\n")
        self._prefix = network.prefix(host)

    def produces(self, bootstrap: str, timeout_ms: int = IN_TIME_MS) -> tuple[list[str], list[str]]:
        """The brokers that the bootstrap server names, and the error of the record, "" for none."""
        command = ["unshare", "--mount", "sh", "-c", WITH_HOSTS, "sh", str(self._hosts)]
        command += [sys.executable, "-c", CLIENT, bootstrap, str(timeout_ms)]
        done = subprocess.run([*self._prefix, *command], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        brokers, outcome = json.loads(done.stdout)
        return brokers, outcome


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_clients_inside_and_outside_produce(tmp_path):
    """Three hosts: the container, a client of its network, and the host with the published port.
    Each client knows the broker by one name, which the broker must tell it."""
    given = settings()
    told = addresses(given["advertised.listeners"])
    (inside_host, inside_port), (outside_host, outside_port) = told["INSIDE"], told["OUTSIDE"]
    assert addresses(given["listeners"])["OUTSIDE"] == ("0.0.0.0", outside_port)
    with Network(["broker", "inside", "outside"]) as network:
        prefix = network.prefix("broker")
        assert health_check(*prefix) != 0
        with BrokerProcess(tmp_path / "data", free_port(), given, prefix) as broker:
            assert health_check(*prefix) == 0
            inside = Client(network, "inside", inside_host, tmp_path)
            outside = Client(network, "outside", outside_host, tmp_path)
            for client, port in ((inside, inside_port), (outside, outside_port)):
                address = f"{client.name}:{port}"
                assert client.produces(address) == ([address], [""])
            # The mistake that two listeners avoid: one port for all clients.
            brokers, outcome = outside.produces(f"{outside_host}:{inside_port}", LOST_MS)
            assert brokers == [f"{inside_host}:{inside_port}"]
            assert outcome != [""]
            assert broker.stop() == 0
        assert health_check(*prefix) != 0


def test_the_health_check_asks_the_port_of_the_settings(tmp_path, monkeypatch):
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "metrics.port": "0"}
    with Broker(settings | {"log.dirs": str(tmp_path)}) as broker:
        address = broker.node.metrics.address
        assert address is not None
        monkeypatch.setenv("KAFKA_METRICS_PORT", address.rpartition(":")[2])
        assert health_check() == 0
    assert health_check() != 0


def wheel() -> Path | None:
    """The newest wheel for this Python, of tests/run or `pip wheel`; None without one."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    folders = [Path(os.environ.get("BARNABAS_TEST_HOME", ROOT / "build/test")), ROOT]
    found = [path for row in folders for path in row.glob(f"dist/barnabas-*-{tag}-*.whl")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def cannot_build() -> str:
    """Why this machine cannot make the files of the image; "" when it can."""
    if missing() is not None:
        return str(missing())
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap is not installed (apt install mmdebstrap)"
    if sys.version_info[:2] != (3, 11):
        return "Debian 12 has Python 3.11"
    return "" if wheel() else "no wheel in dist (pip wheel --no-deps --wheel-dir dist .)"


@pytest.mark.only_long
@pytest.mark.skipif(cannot_build() != "", reason=cannot_build())
def test_a_broker_of_the_image_serves_clients_inside_and_outside(tmp_path):
    """The files of the image are the root of a broker without rights, as a container engine starts
    it, on a host of the network; this needs no engine."""
    root = tmp_path / "root"
    build = [str(FOLDER / "build"), str(wheel()), "--root-only", str(root)]
    done = subprocess.run(
        build, capture_output=True, text=True, env=os.environ | {"PYTHON": sys.executable}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [name for name in ("sh", "bash", "dash", "apt", "dpkg") if in_image(root, name)]
    assert in_image(root, "python3")
    size_bytes = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())
    assert size_bytes < IMAGE_BYTES_MAX, size_bytes
    told = addresses(settings()["advertised.listeners"])
    with Network(["broker", "inside", "outside"]) as network:
        with ImageBroker(root, network.prefix("broker"), tmp_path / "data"):
            for host, listener in (("inside", "INSIDE"), ("outside", "OUTSIDE")):
                name, port = told[listener]
                client = Client(network, host, name, tmp_path)
                assert client.produces(f"{name}:{port}") == ([f"{name}:{port}"], [""])


def in_image(root: Path, name: str) -> bool:
    return any((root / folder / name).exists() for folder in ("bin", "usr/bin", "sbin", "usr/sbin"))


class ImageBroker:
    """The entry point of the image in its root, as user 10001."""

    def __init__(self, root: Path, prefix: tuple[str, ...], data: Path) -> None:
        data.mkdir()
        os.chown(data, USER, USER)
        of_image = dict(re.findall(r"(\w+)=(\S+)", re.search(ENV, CONTAINERFILE)[1]))
        words: list[str] = []
        for name in ("ENTRYPOINT", "CMD"):
            words += json.loads(re.search(rf"^{name} (.*)$", CONTAINERFILE, re.M)[1])
        before = ["unshare", "--mount", "sh", "-c", IN_ROOT, "sh", str(root), str(data)]
        self.process = subprocess.Popen(
            [*prefix, *before, *words],
            stderr=subprocess.PIPE,
            text=True,
            env=of_image | variables(),
            cwd="/",
        )

    def __enter__(self) -> None:
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if line.startswith("ready: "):
                return
        raise AssertionError("".join(lines))

    def __exit__(self, *_raised: object) -> None:
        self.process.terminate()
        assert self.process.stderr is not None
        rest = self.process.stderr.read()
        assert self.process.wait(60) == 0, rest
        self.process.stderr.close()


def test_the_image_runs_no_root_user_and_no_shell():
    assert re.search(r"^USER (\d+):", CONTAINERFILE, re.M)[1] == "10001"
    assert "\nOWNER=10001 " in (FOLDER / "build").read_text()
    assert not re.search(r"^RUN ", CONTAINERFILE, re.M)
    for line in re.findall(r"^(?:ENTRYPOINT|CMD|HEALTHCHECK.*CMD) (.*)$", CONTAINERFILE, re.M):
        assert isinstance(json.loads(line), list)  # the other form needs a shell
