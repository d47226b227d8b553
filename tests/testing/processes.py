"""What a process holds (threads, descriptors, directories, memory), and programs beside it."""

import os
import re
import socket
import struct
import subprocess
import sys

from barnabas.storage.log_dirs import LOCK

SCRATCH = re.compile(r"barnabas-[0-9a-f]{12}")  # of a broker; those of commands have other names
ASK_VERSIONS = struct.pack(">ihhihb", 11, 18, 0, 1, 1, ord("x"))


def threads():
    return set(os.listdir("/proc/self/task"))


def descriptors():
    """The open descriptors: the target of each, with its number."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add((int(fd), os.readlink(f"/proc/self/fd/{fd}")))
        except FileNotFoundError:
            pass  # the descriptor of this listing
    return found


def scratch_directories():
    """The directories of this process's brokers, and those that no process has locked. A test
    in another process may run a broker: its directory is left out."""
    elsewhere = _locked_elsewhere()
    return {
        os.path.join(parent, name)
        for parent in ("/dev/shm", os.environ.get("TMPDIR", "/tmp"))
        for name in os.listdir(parent)
        if SCRATCH.fullmatch(name) and _lock_inode(os.path.join(parent, name)) not in elsewhere
    }


def _lock_inode(directory):
    try:
        return os.stat(os.path.join(directory, LOCK)).st_ino
    except FileNotFoundError:
        return None


def _locked_elsewhere():
    """The inodes of files that other processes have locked: /proc/locks names process and file."""
    with open("/proc/locks") as table:
        rows = [line.split() for line in table if " FLOCK " in line and "->" not in line]
    return {int(row[5].split(":")[2]) for row in rows if int(row[4]) != os.getpid()}


def held():
    """Everything that a stopped broker must have released."""
    return threads() | descriptors() | scratch_directories()


def left_since(before):
    """What is held in addition to `before`. Less is possible: a client of an earlier test, whose
    threads and pipes end later, or a directory that the next broker removed."""
    return held() - before


def resident_bytes():
    """The memory of this process that is in the machine's memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growths(work, limit_bytes):
    """How much each run of work() added to resident_bytes(): three runs at most, the last of which
    is the first below the limit. What work() leaves behind grows in each; the pages that the
    allocator takes once, because earlier tests left it few, do not."""
    grown = []
    while len(grown) < 3 and (not grown or grown[-1] >= limit_bytes):
        before = resident_bytes()
        work()
        grown.append(resident_bytes() - before)
    return grown


def address(broker):
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


def answers(where):
    """Whether a broker there answers an ApiVersions request."""
    with socket.create_connection(where, timeout=10) as connection:
        connection.sendall(ASK_VERSIONS)
        return len(connection.recv(10)) == 10


def run_python(code, *arguments, **options):
    """A program in a process of its own; its output, once it has ended well."""
    ran = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
