"""A small transactional client: read-process-write without the reading, the same for any broker.

Each producer has its own connection, transactional id and group, and does one transaction after
another. A Producer sends AddPartitionsToTxn, Produce of one record (acks=all), AddOffsetsToTxn,
TxnOffsetCommit, EndTxn, as clients up to 3.9 do. A SecondProducer sends Produce, TxnOffsetCommit,
EndTxn, as clients of 4.x do (KIP-890); the answer to EndTxn has the epoch of the next transaction.
When the answer is CONCURRENT_TRANSACTIONS (the broker still completes the previous transaction) the
producer sends the request again after RETRY_S, as clients do, and this wait counts.
"""

import heapq
import selectors
import socket
import struct
import time

from sides import SideError, ask, text

INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END, TXN_COMMIT, PRODUCE = 22, 24, 25, 26, 28, 0
FIND_COORDINATOR = 10
OF_TRANSACTIONS = 1
CONCURRENT_TRANSACTIONS = 51
NOT_READY = (14, 15, 16, CONCURRENT_TRANSACTIONS)
RETRY_S = 0.001
PATIENCE_S = 60.0
TIMEOUT_MS = 60_000
RECORD = b"x" * 100
NO_TAGS = b"\0"


def frame(key: int, version: int, body: bytes) -> bytes:
    data = struct.pack(">hhih", key, version, 1, 5) + b"bench" + body
    return struct.pack(">i", len(data)) + data


def flexible(key: int, version: int, body: bytes) -> bytes:
    return frame(key, version, NO_TAGS + body + NO_TAGS)


def compact(value: bytes) -> bytes:
    """Encodes bytes with their length plus one as a varint in front."""
    count, size = len(value) + 1, b""
    while count > 0x7F:
        size += bytes([count & 0x7F | 0x80])
        count >>= 7
    return size + bytes([count]) + value


def one_of_each(topic: str, index: int, rest: bytes) -> bytes:
    """Encodes one topic with one partition (`index`, then `rest`) in a flexible version."""
    row = struct.pack(">i", index) + rest + NO_TAGS
    return b"\2" + compact(topic.encode()) + b"\2" + row + NO_TAGS


def one_partition(topic: str, index: int) -> bytes:
    """Encodes one topic with the start of one partition's row (`index`), as most requests have
    it."""
    return struct.pack(">i", 1) + text(topic) + struct.pack(">ii", 1, index)


class Producer:
    """One transactional producer; `step` is the index of the request that waits for an answer."""

    def __init__(self, port: int, name: str, topic: str, partition: int, group: str) -> None:
        self.name, self.topic, self.partition, self.group = name, topic, partition, group
        self.id, self.epoch = init_producer(port, name)
        self.sequence, self.step, self.began, self.received = 0, 0, 0.0, b""
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        mine = text(name) + struct.pack(">qh", self.id, self.epoch)
        grouped = text(name) + text(group) + struct.pack(">qh", self.id, self.epoch)
        row = struct.pack(">q", 5) + text("")
        self.frames = [
            frame(ADD_PARTITIONS, 0, mine + one_partition(topic, partition)),
            b"",  # Produce: the sequence changes each time
            frame(ADD_OFFSETS, 0, mine + text(group)),
            frame(TXN_COMMIT, 0, grouped + one_partition(topic, partition) + row),
            frame(END, 0, mine + b"\1"),
        ]

    def begin(self) -> None:
        self.step, self.began = 0, time.perf_counter()
        self.send()

    def send(self) -> None:
        self.sock.sendall(self.frames[self.step] or self._produce())

    def batch(self) -> bytes:
        from barnabas.wire.batches import encode_batch

        batch = encode_batch(
            [RECORD],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += 1
        return batch

    def _produce(self) -> bytes:
        batch = self.batch()
        body = text(self.name) + struct.pack(">hi", -1, TIMEOUT_MS)
        body += one_partition(self.topic, self.partition) + struct.pack(">i", len(batch)) + batch
        return frame(PRODUCE, 7, body)

    def answered(self, answer: bytes) -> int:
        """Returns the error code of the answer to the current request."""
        return code_of(self.step, answer)

    def read(self) -> int | None:
        """Reads from the socket. Returns the error code of a complete answer, else None."""
        self.received += self.sock.recv(1 << 16)
        if len(self.received) < 4 or len(self.received) < 4 + int.from_bytes(self.received[:4]):
            return None
        answer, self.received = self.received[8:], b""
        return self.answered(answer)


class SecondProducer(Producer):
    """A producer of transactions of version 2 (KIP-890): each transaction has its own epoch and
    frames."""

    def begin(self) -> None:
        index, producer = self.partition, struct.pack(">qh", self.id, self.epoch)
        name = compact(self.name.encode())
        self.sequence = 0
        sent = name + struct.pack(">hi", -1, TIMEOUT_MS)
        sent += one_of_each(self.topic, index, compact(self.batch()))
        nobody = struct.pack(">i", -1) + compact(b"") + b"\0"  # generation, member, instance
        row = struct.pack(">qi", 5, -1) + compact(b"")
        grouped = name + compact(self.group.encode()) + producer + nobody
        self.frames = [
            flexible(PRODUCE, 12, sent),
            flexible(TXN_COMMIT, 5, grouped + one_of_each(self.topic, index, row)),
            flexible(END, 5, name + producer + b"\1"),
        ]
        super().begin()

    def answered(self, answer: bytes) -> int:
        topic_bytes = len(self.topic) + 2 + 4 + 1  # includes both counts and the partition's index
        if self.step == 0:
            return int(struct.unpack_from(">h", answer, 1 + topic_bytes)[0])
        if self.step == 1:
            return int(struct.unpack_from(">h", answer, 1 + 4 + topic_bytes)[0])
        code, self.id, self.epoch = struct.unpack_from(">hqh", answer, 1 + 4)
        return int(code)


def code_of(step: int, answer: bytes) -> int:
    """Returns the only error code in an answer of that step; `answer` begins after its correlation
    id."""
    if step in (2, 4):
        return struct.unpack_from(">h", answer, 4)[0]  # after the throttle time
    if step == 1:
        (size,) = struct.unpack_from(">h", answer, 4)
        return struct.unpack_from(">h", answer, 6 + size + 4 + 4)[0]
    return struct.unpack(">h", answer[-2:])[0]  # the last field


def init_producer(port: int, name: str) -> tuple[int, int]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = ask(port, FIND_COORDINATOR, 1, text(name) + bytes([OF_TRANSACTIONS]))
        if struct.unpack_from(">h", found, 4)[0] == 0:
            body = text(name) + struct.pack(">i", TIMEOUT_MS)
            answer = ask(port, INIT_PRODUCER_ID, 0, body)
            code, producer_id, epoch = struct.unpack_from(">hqh", answer, 4)
            if code == 0:
                return producer_id, epoch
            if code not in NOT_READY:
                raise SideError(f"InitProducerId was refused with {code}")
        if time.monotonic() > deadline:
            raise SideError(f"{name} has no transaction coordinator")
        time.sleep(0.05)


def run(
    port: int,
    count: int,
    seconds: float,
    topic: str,
    partitions: int,
    tag: str,
    kind: type[Producer] = Producer,
) -> list[float]:
    """Returns the seconds of each transaction; the last value is the length of the run."""
    chosen = selectors.DefaultSelector()
    producers = [
        kind(port, f"{tag}-{at}", topic, at % partitions, f"{tag}-group-{at}")
        for at in range(count)
    ]
    for one in producers:
        chosen.register(one.sock, selectors.EVENT_READ, one)
    again: list[tuple[float, int]] = []  # when to send the request again, and for which producer
    took: list[float] = []
    began = time.perf_counter()
    for one in producers:
        one.begin()
    busy = count
    while busy:
        wait = max(again[0][0] - time.perf_counter(), 0) if again else PATIENCE_S
        ready = chosen.select(wait)
        now = time.perf_counter()
        while again and again[0][0] <= now:
            producers[heapq.heappop(again)[1]].send()
        if not ready and not again and wait == PATIENCE_S:
            raise SideError("a transaction was not answered")
        for key, _ in ready:
            one = key.data
            code = one.read()
            if code is None:
                continue
            if code in NOT_READY:
                heapq.heappush(again, (now + RETRY_S, producers.index(one)))
            elif code:
                raise SideError(f"step {one.step} of a transaction was refused with {code}")
            elif one.step < len(one.frames) - 1:
                one.step += 1
                one.send()
            else:
                took.append(now - one.began)
                if now - began < seconds:
                    one.begin()
                else:
                    busy -= 1
    for one in producers:
        one.sock.close()
    return [*took, time.perf_counter() - began]
