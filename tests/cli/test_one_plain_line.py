"""What stops a broker or a command is one plain line that says what to do: a full disk, no
permission, a port, a system that is too old, a package that is missing."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.conftest import run_command
from durability.broker_process import free_port

from barnabas.cext.network import reactor

PAGE = os.sysconf("SC_PAGESIZE")
# Root without its rights: it is any user that owns its files.
WITHOUT_RIGHTS = ("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_rights = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv"
)
# Imports what the test wants, and lacks what it wants.
FAKE_SYSTEM = """
import importlib.machinery, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in {lacking!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        if name in {instead!r}:
            file = {instead!r}[name]
            loader = importlib.machinery.ExtensionFileLoader(name, file)
            return importlib.machinery.ModuleSpec(name, loader, origin=file)
sys.meta_path.insert(0, Finder())
"""


def fake_system(
    folder: Path, lacking: tuple[str, ...] = (), instead: dict[str, str] | None = None
) -> str:
    """The PYTHONPATH of a process without the packages of `lacking`, and with other files of the
    modules of `instead`."""
    text = FAKE_SYSTEM.format(lacking=lacking, instead=instead or {})
    (folder / "sitecustomize.py").write_text(text)
    return str(folder)


def refusal(*settings: str, before: tuple[str, ...] = (), **environment: str) -> str:
    """The one line of a start that is refused; "" when the broker serves clients."""
    words = [word for setting in settings for word in ("--set", setting)]
    with subprocess.Popen(
        [*before, sys.executable, "-m", "barnabas", "start", "--quiet", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    ) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("ready: "):
                process.terminate()
                process.stderr.read()
                return ""
    assert process.returncode == 1
    refused = [line for line in lines if line.startswith("barnabas: ")]
    assert refused == lines[-1:] and "unexpected" not in lines[-1], lines  # others are notices
    return refused[0].rstrip("\n")


def settings(data: Path, port: int | None = None, host: str = "127.0.0.1") -> tuple[str, ...]:
    where = f"PLAINTEXT://{host}:{free_port() if port is None else port}"
    return f"log.dirs={data}", f"listeners={where}", "metrics.port=-1"


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A disk in memory."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this machine does not mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@needs_root
def test_a_full_disk(tmp_path):
    """The start ends in one line, whichever of its files the disk has no more space for."""
    refused = 0
    with mounted(tmp_path / "disk", "size=1m") as disk:
        filler, data = disk / "filler", disk / "data"
        for pages in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
            shutil.rmtree(data, ignore_errors=True)
            filler.unlink(missing_ok=True)
            filler.write_bytes(bytes(shutil.disk_usage(disk).free - pages * PAGE))
            line = refusal(*settings(data))
            if line:
                assert "Free s" in line and str(data) in line, line
                refused += 1
    assert 2 <= refused <= 10


@needs_root
def test_a_read_only_disk(tmp_path):
    with mounted(tmp_path / "disk", "ro") as disk:
        line = refusal(*settings(disk / "data"))
    assert "Read-only file system. Make it writable for this user, or set log.dirs" in line


@needs_rights
def test_no_permission(tmp_path):
    tmp_path.chmod(0o500)
    line = refusal(*settings(tmp_path / "data"), before=WITHOUT_RIGHTS)
    assert line == (
        f"barnabas: cannot make the log directory {tmp_path}/data: Permission denied. Make it"
        " writable for this user, or set log.dirs to a place that is. It is the first of log.dirs"
        " and holds the metadata store, so the broker cannot start without it."
    )


@needs_rights
def test_a_port_that_needs_a_right(tmp_path):
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 443:
        pytest.skip("every user may listen on port 443 here")
    line = refusal(*settings(tmp_path, 443), before=WITHOUT_RIGHTS)
    assert "cannot listen on 127.0.0.1:443: Permission denied. A port below 1024 needs" in line


def test_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(*settings(tmp_path, port))
    assert line == (
        f"barnabas: cannot listen on 127.0.0.1:{port}: Address already in use. Stop the process"
        " that uses the port, or take another one: --set listeners=PLAINTEXT://127.0.0.1:PORT"
    )


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("192.0.2.1", "Cannot assign requested address. This host does not have the address"),
        ("broker.invalid", ". This host does not have the address: correct `listeners`"),
    ],
)
def test_an_address_of_another_host(tmp_path, host, said):
    open_to_all = "allow.unauthenticated.remote=true"
    line = refusal(*settings(tmp_path, host=host), open_to_all)
    assert f"cannot listen on {host}:" in line and said in line
    assert "Unknown error" not in line


def test_an_older_c_library(tmp_path):
    """The loader of this system refuses a module that asks for a version that it does not have."""
    module = Path(reactor.__file__)
    old = tmp_path / module.name
    code = module.read_bytes()
    assert b"GLIBC_2.2.5\0" in code
    old.write_bytes(code.replace(b"GLIBC_2.2.5\0", b"GLIBC_9.9.9\0"))
    path = fake_system(tmp_path, instead={reactor.__name__: str(old)})
    line = refusal(*settings(tmp_path / "data"), PYTHONPATH=path)
    assert "version `GLIBC_9.9.9' not found" in line
    assert "pip install --force-reinstall barnabas" in line and "--no-binary" in line


SCHEMA = "plugin.json-schema.file=/dev/null"
EXTRAS = {
    "plugins": (("jsonschema",), ("start", "--set", "plugins=json-schema", "--set", SCHEMA)),
    "tls": (("cryptography",), ("security", "init", "--host", "kafka1")),
    "s3": (("boto3",), ("checkpoint", "show", "s3://bucket/checkpoint")),
    "spark": (("pyspark",), ("spark-load", "news", "--to", "/out", "--checkpoint", "/seen")),
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_package_that_is_missing(tmp_path, extra):
    """tests/security has those of GSSAPI and OAUTHBEARER, test_command_line that of completion."""
    lacking, words = EXTRAS[extra]
    got = run_command(
        *words,
        PYTHONPATH=fake_system(tmp_path, lacking),
        KAFKA_LOG_DIRS=str(tmp_path / "data"),
        KAFKA_LISTENERS="PLAINTEXT://127.0.0.1:0",
    )
    assert got.status == 1 and got.out == b""
    assert f"pip install 'barnabas[{extra}]'" in got.err and len(got.err.splitlines()) == 1, got.err
