"""Tries a wheel as a new user would: try.py WHEEL PLACE. It runs in the Python that the wheel is
for, and needs only its standard library and the package index.

Installs barnabas in a new environment, loads each compiled module, starts a broker, writes a record
and reads it; then the same over TLS with a login. Prints the seconds of each step."""

import importlib
import importlib.metadata
import os
import pkgutil
import shutil
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

wheel, place = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
BIN = place / "venv" / "bin"
began = time.monotonic()


def done(what):
    global began
    print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)
    began = time.monotonic()


def run(*words, text=None):
    command = [BIN / words[0], *map(str, words[1:])]
    made = subprocess.run(command, input=text, capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {made.stdout}{made.stderr}")
    return made.stdout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Started:
    """A broker that serves, until the end of the block."""

    def __init__(self, *words):
        self.words = [BIN / "barnabas", "start", "--set", "metrics.port=-1", *words]

    def __enter__(self):
        self.broker = subprocess.Popen(self.words, stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.broker.stderr:
            said.append(line)
            if line.startswith("ready: "):
                return self
        raise SystemExit(f"the broker did not start: {''.join(said)}")

    def __exit__(self, *_):
        self.broker.terminate()
        rest = self.broker.stderr.read()
        self.broker.stderr.close()
        if self.broker.wait(60):
            raise SystemExit(f"the broker did not stop well: {rest}")


def write_and_read(*options):
    run("barnabas", "topics", "create", "news", "--partitions", "1", *options)
    run("barnabas", "produce", "news", *options, text="hello, world\n")
    read = run("barnabas", "consume", "news", "--end", *options)
    if "hello, world" not in read.splitlines():
        raise SystemExit(f"the record is not what was written: {read!r}")


if sys.argv[3:] == ["modules"]:  # this file again, in the new environment
    import barnabas.cext

    count = 0
    for row in pkgutil.walk_packages(barnabas.cext.__path__, "barnabas.cext."):
        count += importlib.import_module(row.name).__file__.endswith(".so")
    from barnabas.cext.network import tls

    names = sorted({d.name.lower() for d in importlib.metadata.distributions()})
    print(f"{count} compiled modules; {tls.library()}; installed: {' '.join(names)}")
    sys.exit()

compilers = [name for name in ("cc", "gcc", "clang", "c++", "g++") if shutil.which(name)]
if compilers:
    raise SystemExit(f"this environment has compilers: {' '.join(compilers)}")
libc = os.confstr("CS_GNU_LIBC_VERSION")
print(f"{wheel.name}: Python {sys.version.split()[0]}, {os.uname().machine}, {libc}, no compiler")
venv.create(place / "venv", with_pip=True)
done("a new environment")
run("pip", "install", "-q", "--only-binary", ":all:", wheel)
done("pip install barnabas")
print(run("python", __file__, wheel, place, "modules").strip())
done("each compiled module loads")
port = free_port()
data = ("--set", f"log.dirs={place / 'data'}")
with Started("--set", f"listeners=PLAINTEXT://127.0.0.1:{port}", *data):
    done("the broker starts and serves")
    write_and_read("--bootstrap-server", f"127.0.0.1:{port}")
    done("topic, record written, record read")
done("the broker stops")
run("pip", "install", "-q", "--only-binary", ":all:", f"{wheel}[tls]")
os.chdir(place)
port = free_port()
run("barnabas", "security", "init", "--port", port, "--set", f"log.dirs={place / 'secured'}")
done("barnabas security init")
with Started("--config", "security/server.properties"):
    secured = ("-b", f"localhost:{port}", "--command-config", "security/client.properties")
    write_and_read(*secured)
    done("the same over TLS with a login")
