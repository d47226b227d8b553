"""A broker, ours or Apache Kafka, and the command as a user calls it."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from compat.support import KAFKA, QUICK_HEAP, rival

from barnabas import Broker

COMMAND = str(Path(sys.executable).parent / "barnabas")
TIMEOUT_S = 120


@dataclass
class Ran:
    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


Run = Callable[..., Ran]


def run_command(*words: str, stdin: bytes = b"", **environment: str) -> Ran:
    done = subprocess.run(
        [COMMAND, *words],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
        check=False,
    )
    err = done.stderr.decode()
    assert "Traceback" not in err
    return Ran(done.returncode, done.stdout, err)


@pytest.fixture(scope="module")
def our_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {
        "log.dirs": str(tmp_path_factory.mktemp("cli") / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    with Broker(settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rival.Rival]:
    reason = rival.missing(KAFKA)
    if reason:
        pytest.skip(reason)
    with rival.Rival(KAFKA, tmp_path_factory.mktemp("kafka"), heap=QUICK_HEAP) as running:
        yield running


@pytest.fixture(params=["barnabas", pytest.param("kafka", marks=pytest.mark.java)])
def address(request: pytest.FixtureRequest) -> str:
    """Each test that takes it runs against both brokers."""
    if request.param == "barnabas":
        return str(request.getfixturevalue("our_address"))
    return str(request.getfixturevalue("kafka").address)


@pytest.fixture
def barnabas(address: str) -> Run:
    """`barnabas COMMAND … --bootstrap-server`, of the broker under test."""

    def run(*words: str, stdin: bytes = b"") -> Ran:
        return run_command(*words, "--bootstrap-server", address, stdin=stdin)

    return run


@pytest.fixture
def topic(barnabas: Run) -> str:
    """A new topic with one partition."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    made = barnabas("topics", "create", name, "--partitions", "1")
    assert made.status == 0, made.err
    return name
