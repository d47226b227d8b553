"""Counts the instructions of a request on the network thread with callgrind, which noise does not
change.

    python tests/native/instructions.py              shows the counts and the recorded ones
    python tests/native/instructions.py --record     writes instructions.json again

A broker with its defaults runs under valgrind; bench/loadgen.c sends from outside of it, one
request at a time. Only what happens inside conn_event is counted, which is the whole of a request
on the network thread: receive, parse, check, append or read, answer, send. Per request = the
difference of two loads of different length, so that connecting and closing cancel out. The
kernel's part is not in it. Valgrind shows the program a processor without AVX-512: the CRC is the
SSE4.2 one.
"""

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECORDED = HERE / "instructions.json"
COUNTED = "__pyx_f_8barnabas_4cext_7network_10connection_conn_event"
SHORT, LONG = 200, 1200
ROUNDS = 3
START_TIMEOUT_S = 120
SERVE = """
import json, pathlib, signal, sys
from barnabas import Broker
settings = json.loads(sys.argv[3])
settings |= {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}
with Broker(settings) as broker:
    part = pathlib.Path(sys.argv[2] + ".part")
    part.write_text(broker.bootstrap_servers)
    part.rename(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pause()
"""

# name -> (topic, arguments of loadgen); the produce row fills a topic before it is read.
LOADS = {
    "produce of 1 record": ("small", "produce"),
    "produce of 64 KiB, 595 records": ("bulk", "produce --records 595"),
    "fetch of 4 KiB": ("small", "fetch --max-bytes 4096"),
    "fetch of 1 MiB": ("bulk", "fetch --max-bytes 1048576"),
}
# Plugins run, but not for this topic.
BESIDE_PLUGINS = "produce of 1 record beside plugins"
PLUGINS = {"plugins": "audit"}
INTERCEPTED = {"produce.interceptors": "audit"}


def missing() -> str | None:
    """Why this machine cannot count, or None."""
    for command in ("valgrind", "callgrind_control", "cc"):
        if shutil.which(command) is None:
            return f"{command} is not installed"
    return None


def machine() -> str:
    """What the counts depend on besides the code: another compiler makes other instructions."""
    compiler = subprocess.run(["cc", "-dumpfullversion"], capture_output=True, text=True).stdout
    return f"{platform.machine()}, cc {compiler.strip()}"


class Counted:
    """A broker under callgrind, and the load generator."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder, self.settings, self.dumps = folder, settings, 0
        self.generator = folder / "loadgen"
        source = ROOT / "bench" / "loadgen.c"
        subprocess.run(["cc", "-O2", "-o", str(self.generator), str(source)], check=True)

    def __enter__(self) -> "Counted":
        ready = self.folder / "ready"
        script = self.folder / "serve.py"
        script.write_text(SERVE)
        valgrind = ["valgrind", "--tool=callgrind", f"--toggle-collect={COUNTED}"]
        valgrind += ["--instr-atstart=no"]  # Python and the broker start in a quarter of the time
        valgrind += [f"--callgrind-out-file={self.folder / 'counted'}", sys.executable]
        with open(self.folder / "broker.out", "wb") as out:
            self.process = subprocess.Popen(
                [*valgrind, str(script), str(self.folder / "data"), str(ready),
                 json.dumps(self.settings)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder,
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError((self.folder / "broker.out").read_text(errors="replace"))
            time.sleep(0.1)
        self.port = int(ready.read_text().rpartition(":")[2])
        self.control("--instr=on")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def load(self, topic: str, words: str, requests: int) -> None:
        command = [str(self.generator), *words.split(), "--port", str(self.port)]
        command += ["--topic", topic, "--requests", str(requests)]
        subprocess.run(command, check=True, capture_output=True)

    def control(self, what: str) -> None:
        command = ["callgrind_control", what, str(self.process.pid)]
        subprocess.run(command, check=True, capture_output=True)

    def count(self) -> int:
        """Instructions since the previous count."""
        self.dumps += 1
        self.control("--dump")
        dump = self.folder / f"counted.{self.dumps}"
        found = re.search(r"^(?:summary|totals): (\d+)", dump.read_text(), re.M)
        return int(found[1]) if found else 0

    def per_request(self, topic: str, words: str) -> int:
        """Each load counts as the least of some rounds: on a busy machine an answer may need a
        second event."""
        self.load(topic, words, SHORT)
        self.count()
        counts = [
            (self._of(topic, words, SHORT), self._of(topic, words, LONG)) for _ in range(ROUNDS)
        ]
        short, long = map(min, zip(*counts, strict=True))
        return round((long - short) / (LONG - SHORT))

    def _of(self, topic: str, words: str, requests: int) -> int:
        self.load(topic, words, requests)
        return self.count()


def measured() -> dict[str, int]:
    """Instructions for one request of each load."""
    sys.path.insert(0, str(ROOT / "bench"))
    from sides import create_topic

    found = {}
    with tempfile.TemporaryDirectory(prefix="barnabas-instructions-") as folder:
        with Counted(Path(folder), {}) as counted:
            for topic in ("small", "bulk"):
                create_topic(counted.port, topic, 1)
            for name, load in LOADS.items():
                found[name] = counted.per_request(*load)
    with tempfile.TemporaryDirectory(prefix="barnabas-instructions-") as folder:
        with Counted(Path(folder), PLUGINS) as counted:
            create_topic(counted.port, "seen", 1, INTERCEPTED)
            create_topic(counted.port, "small", 1)
            counted.load("seen", "produce", SHORT)
            found[BESIDE_PLUGINS] = counted.per_request("small", "produce")
    return found


def drift(found: dict[str, int], recorded: dict[str, int]) -> dict[str, float]:
    """How much more each load costs than was recorded: 0.05 is five per cent."""
    return {name: found[name] / recorded[name] - 1 for name in recorded}


def main(words: list[str]) -> int:
    found = measured()
    if words == ["--record"]:
        result = {"machine": machine(), "instructions": found}
        RECORDED.write_text(json.dumps(result, indent=1) + "\n")
    recorded = json.loads(RECORDED.read_text())
    more = drift(found, recorded["instructions"])
    print(f"{machine()}; recorded on {recorded['machine']}")
    for name, count in found.items():
        print(f"{name:32} {count:9,}  {more[name]:+.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
