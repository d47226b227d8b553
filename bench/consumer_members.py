"""Members of consumer groups (KIP-848) that speak the wire, for the rows of coordinators.py.

A member joins, heartbeats every HEARTBEAT_S, gives up what it is told to, takes what it is given.
"""

import selectors
import socket
import time

from sides import Side, SideError, cpu_s

from barnabas.wire import Struct, request, response
from barnabas.wire.headers import decode_response_header, encode_request

HEARTBEAT = 68
HEARTBEAT_S = 0.1
PATIENCE_S = 120.0
FILL_CONNECTIONS = 8


class ConsumerMember:
    """One connection, one member."""

    def __init__(self, port: int, group: str, member: str, topic: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group, self.member, self.topic = group, member, topic
        self.epoch, self.waiting, self.beat_at, self.received = 0, False, 0.0, b""
        self.owned: list[tuple[bytes, list[int]]] = []

    @property
    def partition_count(self) -> int:
        return sum(len(partitions) for _, partitions in self.owned)

    def heartbeat(self) -> None:
        self.waiting = True
        self.sock.sendall(
            first(self.group, self.member, self.topic)
            if self.epoch == 0
            else later(self.group, self.member, self.epoch, self.owned)
        )

    def read(self) -> None:
        self.received += self.sock.recv(1 << 16)
        size = 4 + int.from_bytes(self.received[:4], "big")
        if len(self.received) < max(size, 5):
            return
        told, self.received = answer_of(self.received[4:size]), self.received[size:]
        self.waiting, self.beat_at = False, time.perf_counter() + HEARTBEAT_S
        if told.errorCode:
            raise SideError(f"a heartbeat was refused with {told.errorCode}: {told.errorMessage}")
        self.epoch = told.memberEpoch
        if told.assignment is not None:
            rows = told.assignment.topicPartitions
            self.owned = [(bytes(row.topicId), list(row.partitions)) for row in rows]


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


def later(group: str, member: str, epoch: int, owned: list[tuple[bytes, list[int]]]) -> bytes:
    message = request(HEARTBEAT)
    row = message.struct("topicPartitions")
    rows = [row(topicId=topic, partitions=partitions) for topic, partitions in owned]
    body = message.cls(groupId=group, memberId=member, memberEpoch=epoch, topicPartitions=rows)
    return encode_request(HEARTBEAT, 1, 1, "bench", body)


def answer_of(frame: bytes) -> Struct:
    _, at = decode_response_header(frame, HEARTBEAT, 1)
    return response(HEARTBEAT).decode(frame, 1, at)


def join(side: Side, count: int, group: str, topic: str, partitions: int) -> dict[str, float]:
    """From the first join until everybody is at the group's last epoch with its part."""
    members = [ConsumerMember(side.port, group, f"m{at}", topic) for at in range(count)]
    chosen = selectors.DefaultSelector()
    for one in members:
        chosen.register(one.sock, selectors.EVENT_READ, one)
    cpu_before_s, began = cpu_s(side.pid), time.perf_counter()
    for one in members:
        one.heartbeat()
    last = count + 1  # a group begins with 1, and each member's join is one more
    while True:
        for row, _ in chosen.select(HEARTBEAT_S / 4):
            row.data.read()
        now = time.perf_counter()
        if all(one.epoch == last for one in members):
            if sum(one.partition_count for one in members) == partitions:
                break
        if now - began > PATIENCE_S:
            raise SideError(f"{count} members are not assigned within {PATIENCE_S} s")
        for one in members:
            if not one.waiting and one.beat_at <= now:
                one.heartbeat()
    figures = {
        "all_assigned_s": time.perf_counter() - began,
        "cpu_s": cpu_s(side.pid) - cpu_before_s,
    }
    for one in members:
        one.sock.close()
    return figures


def fill(side: Side, count: int, group: str, topic: str) -> None:
    """So many members join one group and are not heard of again."""
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
