"""Members of consumer groups (KIP-848) over raw sockets, for the rows of coordinators.py.

A member joins, heartbeats every HEARTBEAT_S, gives up revoked partitions, takes assigned ones, and
reports its partitions when they have changed, as Java's and librdkafka's members do. The CPU time
of 500 members in the load must not hide their cost in the broker. So frames are built before they
are needed, an answer without an assignment is read at two offsets, and no loop visits all
members."""

import selectors
import socket
import struct
import time
from collections import deque

from sides import Side, SideError, cpu_s

from barnabas.wire import Struct, request, response
from barnabas.wire.headers import decode_response_header, encode_request

HEARTBEAT = 68
HEARTBEAT_S = 0.1
PATIENCE_S = 120.0
FILL_CONNECTIONS = 8
NULL = 0xFF  # marks an unchanged assignment
_error = struct.Struct(">h").unpack_from
_epoch = struct.Struct(">i")
_ERROR_AT = 4 + 1 + 4  # correlation id, tags, throttle time
_MEMBER_AT = _ERROR_AT + 2 + 1  # without an error message


class ConsumerMember:
    """One member with its own connection."""

    def __init__(self, port: int, group: str, member: str, topic: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group, self.member = group, member
        self.epoch, self.beat_at, self.received = 0, 0.0, b""
        self.owned: list[tuple[bytes, list[int]]] = []
        self.next_frame = first(group, member, topic)
        self.steady_frame = bytearray(later(group, member, 0, None))
        self.epoch_at = self.steady_frame.index(member.encode()) + len(member.encode())

    @property
    def partition_count(self) -> int:
        return sum(len(partitions) for _, partitions in self.owned)

    def heartbeat(self) -> None:
        if self.next_frame:
            frame, self.next_frame = self.next_frame, b""
        else:
            _epoch.pack_into(self.steady_frame, self.epoch_at, self.epoch)
            frame = self.steady_frame
        self.sock.sendall(frame)

    def read(self) -> bool:
        """Reads from the socket. Returns True when the answer is complete."""
        self.received += self.sock.recv(1 << 16)
        size = 4 + int.from_bytes(self.received[:4], "big")
        if len(self.received) < max(size, 5):
            return False
        answer, self.received = self.received[4:size], self.received[size:]
        self.beat_at = time.perf_counter() + HEARTBEAT_S
        if _error(answer, _ERROR_AT)[0]:
            told = answer_of(answer)
            raise SideError(f"a heartbeat was refused with {told.errorCode}: {told.errorMessage}")
        at = _MEMBER_AT + answer[_MEMBER_AT]
        self.epoch = _epoch.unpack_from(answer, at)[0]
        if answer[at + 4 + 4] != NULL:
            rows = answer_of(answer).assignment.topicPartitions
            self.owned = [(bytes(row.topicId), list(row.partitions)) for row in rows]
            self.next_frame = later(self.group, self.member, self.epoch, self.owned)
        return True


def first(group: str, member: str, topic: str) -> bytes:
    body = request(HEARTBEAT).cls(
        groupId=group,
        memberId=member,
        memberEpoch=0,
        rebalanceTimeoutMs=60_000,
        subscribedTopicNames=[topic],
        topicPartitions=[],
    )
    return encode_request(HEARTBEAT, 1, 1, "bench", body)


def later(
    group: str, member: str, epoch: int, owned: list[tuple[bytes, list[int]]] | None
) -> bytes:
    message = request(HEARTBEAT)
    row = message.struct("topicPartitions")
    rows = owned and [row(topicId=topic, partitions=partitions) for topic, partitions in owned]
    body = message.cls(groupId=group, memberId=member, memberEpoch=epoch, topicPartitions=rows)
    return encode_request(HEARTBEAT, 1, 1, "bench", body)


def answer_of(frame: bytes) -> Struct:
    _, at = decode_response_header(frame, HEARTBEAT, 1)
    return response(HEARTBEAT).decode(frame, 1, at)


def join(side: Side, count: int, group: str, topic: str, partitions: int) -> dict[str, float]:
    """Measures from the first join until all members are at the group's last epoch with their
    partitions."""
    members = [ConsumerMember(side.port, group, f"m{at}", topic) for at in range(count)]
    chosen = selectors.DefaultSelector()
    for one in members:
        chosen.register(one.sock, selectors.EVENT_READ, one)
    cpu_before_s, began = cpu_s(side.pid), time.perf_counter()
    for one in members:
        one.heartbeat()
    last = count + 1  # a group begins with 1, and each member's join is one more
    due: deque[ConsumerMember] = deque()  # answered members; the first has the next heartbeat
    behind, given = count, 0
    while behind or given != partitions:
        for row, _ in chosen.select(HEARTBEAT_S / 100):
            one = row.data
            was, had = one.epoch, one.partition_count
            if one.read():
                due.append(one)
                behind -= was != last and one.epoch == last
                given += one.partition_count - had
        now = time.perf_counter()
        if now - began > PATIENCE_S:
            raise SideError(f"{count} members are not assigned within {PATIENCE_S} s")
        while due and due[0].beat_at <= now:
            due.popleft().heartbeat()
    figures = {
        "all_assigned_s": time.perf_counter() - began,
        "cpu_s": cpu_s(side.pid) - cpu_before_s,
    }
    for one in members:
        one.sock.close()
    return figures


def fill(side: Side, count: int, group: str, topic: str) -> None:
    """Lets so many members join one group; they send nothing after that."""
    socks = [socket.create_connection(("127.0.0.1", side.port)) for _ in range(FILL_CONNECTIONS)]
    for at in range(0, count, FILL_CONNECTIONS):
        for sock, number in zip(socks, range(at, count), strict=False):
            sock.sendall(first(group, f"member-{number:028}", topic))
        for sock, _ in zip(socks, range(at, count), strict=False):
            received = b""
            while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
                received += sock.recv(1 << 16)
            told = answer_of(received[4:])
            if told.errorCode:
                raise SideError(f"a member was refused with {told.errorCode}")
    for sock in socks:
        sock.close()
