"""`barnabas mirror` as a process of its own, for tests."""

import contextlib
import re
import signal
import subprocess
import sys
import threading
import urllib.request

WAIT_S = 60


def command(*words):
    return [sys.executable, "-m", "barnabas", "mirror", *map(str, words)]


def run(*words):
    """Runs the mirror to its end."""
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=WAIT_S)


class MirrorProcess:
    """A running mirror; `lines` has its standard error."""

    def __init__(self, *words):
        self.process = subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True)
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        status = self.process.wait(WAIT_S)
        self._reader.join(10)
        self.process.stderr.close()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_raised):
        if self.process.poll() is None:
            self.end(signal.SIGKILL)


def page(port):
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()
    return ""


def figure(port, name):
    """The sum of a metric over all labels; None if the page does not have it."""
    found = re.findall(rf"^{name}(?:{{.*}})? (.*)$", page(port), re.M)
    return sum(map(float, found)) if found else None
