"""Consumer groups over raw sockets: commits, a group that joins at once, many groups of one.

The requests have versions without the flexible encoding, which old and new brokers accept. The rows
of bench/coordinators.py use this module.
"""

import json
import selectors
import socket
import struct
import subprocess
import time
from pathlib import Path

from sides import Side, SideError, ask, cpu_s, text

TOPIC = "groups"
COMMIT, OFFSET_FETCH, FIND, JOIN, HEARTBEAT, SYNC = 8, 9, 10, 11, 12, 14
SESSION_MAX_MS = 1_800_000  # the longest that both brokers accept
NOT_READY = (14, 15, 16)
HEARTBEAT_US = 10_000  # the first member learns with one that others have come
PATIENCE_S = 120.0


def frame(key: int, version: int, body: bytes) -> bytes:
    data = struct.pack(">hhih", key, version, 1, 5) + b"bench" + body
    return struct.pack(">i", len(data)) + data


def commit_body(group: str) -> bytes:
    """Returns the body of OffsetCommit 2 without a member. In its answer the error code is the last
    field."""
    row = struct.pack(">iq", 0, 5) + text("")
    rows = struct.pack(">i", 1) + text(TOPIC) + struct.pack(">i", 1) + row
    head = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    return head + rows


def find(port: int, group: str) -> None:
    """Waits until the group has a coordinator that accepts its commits."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if struct.unpack(">h", ask(port, FIND, 0, text(group))[:2])[0] not in NOT_READY:
            answer = ask(port, COMMIT, 2, commit_body(group))
            if struct.unpack(">h", answer[-2:])[0] not in NOT_READY:
                return
        if time.monotonic() > deadline:
            raise SideError(f"group {group} has no coordinator")
        time.sleep(0.05)


def commits_of(groups: list[str]) -> tuple[bytes, int, bytes]:
    """Returns the input of `loadgen ask`: a request for each group, their common size, and the
    answer."""
    requests = [frame(COMMIT, 2, commit_body(group))[4:] for group in groups]
    sizes = {len(request) for request in requests}
    assert len(sizes) == 1, "names of one length make requests of one length"
    answer = struct.pack(">i", 1) + text(TOPIC) + struct.pack(">iih", 1, 0, 0)
    return b"".join(requests), sizes.pop(), answer


def join(side: Side, joinload: Path, count: int, name: str) -> dict[str, float]:
    """Lets so many members join with joinload.c; measures from the first join to the last
    assignment."""
    find(side.port, name)
    cpu_before_s = cpu_s(side.pid)
    found = join_at(side.port, joinload, count, name)
    return found | {"cpu_s": cpu_s(side.pid) - cpu_before_s}


def join_at(port: int, joinload: Path, count: int, name: str) -> dict[str, float]:
    """Does the same with the program on `port`, which may be a program without a broker."""
    words = [str(joinload), str(port), name, str(count), str(HEARTBEAT_US)]
    ran = subprocess.run(words, capture_output=True, text=True)
    if ran.returncode:
        raise SideError(ran.stderr.strip())
    return {"all_assigned_s": json.loads(ran.stdout)["all_assigned_s"]}


# ---- many groups, a member each ----
def each(port: int, frames: list[bytes], connections: int = 16) -> list[bytes]:
    """Sends all requests over a few connections, one after another on each. Returns the answers
    without their correlation ids, in the order of the requests."""
    chosen = selectors.DefaultSelector()
    answers: list[bytes] = [b""] * len(frames)
    following = iter(range(len(frames)))
    for _ in range(min(connections, len(frames))):
        sock = socket.create_connection(("127.0.0.1", port), timeout=60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first = next(following)
        chosen.register(sock, selectors.EVENT_READ, [first, b""])
        sock.sendall(frames[first])
    while chosen.get_map():
        ready = chosen.select(PATIENCE_S)
        if not ready:
            raise SideError("a request was not answered")
        for key, _ in ready:
            key.data[1] += key.fileobj.recv(1 << 16)
            received = key.data[1]
            if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4]):
                continue
            answers[key.data[0]] = received[8:]
            index = next(following, None)
            if index is None:
                chosen.unregister(key.fileobj)
                key.fileobj.close()
            else:
                key.data[0], key.data[1] = index, b""
                key.fileobj.sendall(frames[index])
    return answers


def heartbeats_of(port: int, groups: list[str]) -> tuple[bytes, int, bytes]:
    """Returns the input of `loadgen ask`: a heartbeat of each group's one member, which joins
    first."""
    rows = join_alone(port, groups)
    requests = [
        frame(HEARTBEAT, 1, text(name) + struct.pack(">i", generation) + text(member))[4:]
        for name, (generation, member) in zip(groups, rows, strict=True)
    ]
    sizes = {len(request) for request in requests}
    assert len(sizes) == 1, "names of one length make requests of one length"
    return b"".join(requests), sizes.pop(), struct.pack(">ih", 0, 0)


def join_alone(port: int, groups: list[str]) -> list[tuple[int, str]]:
    """Joins one member to each group and assigns it a partition. Returns (generation, id) of
    each."""
    subscription = struct.pack(">hi", 0, 1) + text(TOPIC) + struct.pack(">i", 0)
    rest = text("") + text("consumer") + struct.pack(">i", 1) + text("range")
    rest += struct.pack(">i", len(subscription)) + subscription
    timeouts = struct.pack(">ii", SESSION_MAX_MS, SESSION_MAX_MS)
    joined = each(port, [frame(JOIN, 3, text(name) + timeouts + rest) for name in groups])
    assignment = struct.pack(">hi", 0, 1) + text(TOPIC) + struct.pack(">iii", 1, 0, 0)
    given = struct.pack(">i", len(assignment)) + assignment
    syncs, members = [], []
    for name, answer in zip(groups, joined, strict=True):
        (error, generation) = struct.unpack_from(">hi", answer, 4)
        if error:
            raise SideError(f"a join of {name} was refused with {error}")
        at = 10
        for _ in range(3):  # protocol, leader, member
            (size,) = struct.unpack_from(">h", answer, at)
            member, at = answer[at + 2 : at + 2 + size].decode(), at + 2 + size
        members.append((generation, member))
        head = text(name) + struct.pack(">i", generation) + text(member)
        syncs.append(frame(SYNC, 1, head + struct.pack(">i", 1) + text(member) + given))
    for name, answer in zip(groups, each(port, syncs), strict=True):
        (error,) = struct.unpack_from(">h", answer, 4)
        if error:
            raise SideError(f"a sync of {name} was refused with {error}")
    return members


def commit_each(port: int, groups: list[str]) -> None:
    for answer in each(port, [frame(COMMIT, 2, commit_body(name)) for name in groups]):
        if answer[-2:] != b"\0\0":
            raise SideError(f"a commit was refused with {answer[-2:]!r}")


def offset_fetch(group: str) -> bytes:
    rows = struct.pack(">i", 1) + text(TOPIC) + struct.pack(">ii", 1, 0)
    return frame(OFFSET_FETCH, 1, text(group) + rows)


def wait_until_loaded(port: int, groups: list[str]) -> None:
    """Waits until each of these groups, which lie in all partitions, returns its committed
    offset."""
    deadline = time.monotonic() + PATIENCE_S
    left = groups
    while left:
        answers = each(port, [offset_fetch(name) for name in left])
        left = [
            name
            for name, answer in zip(left, answers, strict=True)
            if struct.unpack(">h", answer[-2:])[0] in NOT_READY
        ]
        if time.monotonic() > deadline:
            raise SideError(f"{len(left)} groups are not loaded within {PATIENCE_S} s")
        if left:
            time.sleep(0.02)
