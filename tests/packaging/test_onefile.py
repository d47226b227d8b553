"""The one-file executable in a root with glibc and a shell only: no Python, no /proc, and /tmp
mounted noexec. The commands are those of the README."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from wheel_maker import write_loud

from barnabas.hooks.builtin import BUILTIN

ROOT = Path(__file__).resolve().parents[2]
HOME = os.environ.get("BARNABAS_TEST_HOME")
ONEFILE = Path(os.environ.get("BARNABAS_ONEFILE") or Path(HOME or ROOT) / "dist" / "barnabas")
SIZE_MAX = 60_000_000
COLD_S_MAX, WARM_S_MAX = 3.0, 1.0

pytestmark = [
    pytest.mark.skipif(not ONEFILE.exists(), reason="no one file here: make onefile, tests/run"),
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot and mounts need root"),
    pytest.mark.alone(reason="tests/run builds the one file beside the other tests"),
]

# Runs in a mount, network and process namespace of its own, which end with it.
ENTER = """
set -e
mount -t tmpfs -o noexec,nosuid,nodev tmpfs "$1/tmp"
python3 -c '
import fcntl, socket, struct
with socket.socket() as s:  # the loopback interface goes up
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 1))'
exec chroot "$1" /bin/sh /run.sh
"""
# Starts a broker, waits until it serves, runs `then`, and stops it.
WITH_BROKER = """
set -e
export HOME=/root PATH=/bin
barnabas start {options} 2>/said &
broker=$!
exec 3</said
ready=
while [ -z "$ready" ] && read -r line <&3; do
    echo "$line" >&2
    case $line in ready:*) ready=yes ;; esac
done
[ -n "$ready" ]
{then}
kill $broker
while read -r line <&3; do echo "$line" >&2; done
wait $broker
"""
README = (ROOT / "README.md").read_text()
QUICK_START = re.search(r"## First records.*?```sh\n(.*?)```", README, re.S)[1]


@pytest.fixture
def root(tmp_path):
    """A root directory with glibc, a shell, and the one file."""
    made = tmp_path / "root"
    for name in ("bin", "lib64", "tmp", "root", "dev", "var/cache", "var/lib"):
        (made / name).mkdir(parents=True)
    listed = subprocess.run(["dpkg", "-L", "libc6"], capture_output=True, text=True, check=True)
    for path in map(Path, listed.stdout.split()):
        if ".so" in path.name and path.is_file() and "gconv" not in path.parts:
            target = made / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    shutil.copy2("/lib64/ld-linux-x86-64.so.2", made / "lib64")
    shutil.copy2("/bin/dash", made / "bin" / "sh")
    shutil.copy2(ONEFILE, made / "bin" / "barnabas")
    os.mkfifo(made / "said")
    os.mknod(made / "dev" / "null", 0o20666, os.makedev(1, 3))
    return made


def run_in(root, script):
    (root / "run.sh").write_text(script)
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    return subprocess.run(
        [*command, "sh", "-c", ENTER, "sh", root],
        capture_output=True,
        text=True,
        timeout=100,
        env={"PATH": os.environ["PATH"]},
    )


def with_broker(root, then, options=""):
    return run_in(root, WITH_BROKER.format(options=options, then=then))


def test_the_quick_start_of_the_readme_works(root):
    assert "barnabas produce news" in QUICK_START
    done = with_broker(root, QUICK_START)
    assert done.returncode == 0, done.stderr
    assert "hello, world" in done.stdout.splitlines()
    assert "stopped" in done.stderr
    assert {path.name for path in (root / "tmp").iterdir()} == set()
    [store] = (root / "var/cache/barnabas").iterdir()
    assert store.name == "onefile" and len(list(store.iterdir())) == 1  # unpacked once


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_plugins_with_c_code_run_inside_and_in_processes_of_their_own(root, isolation):
    write_loud(root / "wheels")
    options = f"--plugin-path /wheels --set plugins=loud --set plugin.loud.isolation={isolation}"
    then = """
    barnabas topics create news --config produce.interceptors=loud
    echo 'hello, world' | barnabas produce news
    barnabas consume news --end
    """
    done = with_broker(root, then, options)
    assert done.returncode == 0, done.stderr
    assert "HELLO, WORLD" in done.stdout.splitlines()
    assert ("in its own process" in done.stderr) == (isolation == "process")


def test_every_built_in_plugin_can_be_imported(root):
    done = run_in(root, "barnabas plugins list --json")
    rows = json.loads(done.stdout)
    assert {row["name"] for row in rows} == set(BUILTIN)
    assert [row["what"] for row in rows if "cannot import" in row["what"]] == []


def test_size_and_time_to_the_first_answer(tmp_path):
    """Times of a machine that does other things are not judged: each bound has ten times more."""
    assert ONEFILE.stat().st_size < SIZE_MAX
    took = {}
    for name in ("cold", "warm"):
        began = time.monotonic()
        command = [ONEFILE, "start", "--set", f"log.dirs={tmp_path / name}"]
        command += ["--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "metrics.port=-1"]
        environ = os.environ | {"CACHE_DIRECTORY": str(tmp_path / "cache")}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as broker:
            for line in broker.stderr:
                if line.startswith("ready: "):
                    took[name] = time.monotonic() - began
                    broker.terminate()
        assert broker.returncode == 0
    print(f"first answer after {took} s, {ONEFILE.stat().st_size:,} bytes")
    assert took["cold"] < 10 * COLD_S_MAX and took["warm"] < 10 * WARM_S_MAX
