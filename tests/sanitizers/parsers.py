"""What bytes from outside reach: the parsers before a login, messages, record batches, codecs.

`Parsers` has one method for each. A method takes any bytes; the parser may refuse them with its own
error, and whatever else it raises is a defect. fuzz.py looks for such bytes, with coverage;
test_parsers.py gives each method its seeds, cut and with one changed byte.
"""

import contextlib
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from native.conftest import Broker as PartitionBroker
from native.test_fetch_old import Old
from oracle import kafka07
from oracle.old_produce import inner, wrapper
from oracle.produce import batch, compressed, produce_frame, record
from oracle.vectors import message_vectors, vectors
from security.json_tokens import first_message, oauth_settings, signed, unsigned
from security.login_broker import MECHANISMS, frame, header, login_broker

from barnabas.cext.codec.crc import crc32, crc32c
from barnabas.cext.codec.inflate import CorruptInput, TooLarge, lz4_block, lz4_decode, snappy_decode
from barnabas.cext.fetch.fetch import ParkedFetch
from barnabas.cext.log.log_handle import LogHandle
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.partition.partitions import PartitionTable
from barnabas.cext.produce.produce import MalformedProduce, ProduceHandler
from barnabas.cext.record.conversion import CannotConvert, down_convert, up_convert
from barnabas.cext.record.messages07 import MissingRecords, messages_of
from barnabas.cext.record.records import CorruptRecords, Record, encode_batch
from barnabas.errors import UnsupportedVersion
from barnabas.legacy07.frames import BadRequest, ProduceAsked, parse_request
from barnabas.legacy07.produce import produce_request
from barnabas.security.failures import LoginFailed
from barnabas.security.session import Session
from barnabas.server.decode_pool import answer_job
from barnabas.server.down_conversion import convert_range
from barnabas.wire import MalformedMessage, by_name, compression
from barnabas.wire.batches import decode_batches
from barnabas.wire.columns import read_columns
from barnabas.wire.headers import decode_request_header

SIZE_MAX = 1 << 20  # of what is decompressed
CLOSE_S = 10
ALL_MECHANISMS = (*MECHANISMS.split(","), "OAUTHBEARER")
WRAPPERS = [wrapper(magic, 1, b"x", offset=2) for magic in (0, 1)]
NEXT = b"\xff\xff"  # between two tokens of a login
NONCE = b"NONCE"  # in the second token: what the broker has answered
UNTRUE = b"\0alice\0a password that alice does not have"
VECTORS = [v for v in message_vectors() if v["kind"] in ("request", "response")]
PROGRAMS = sorted({(v["api"], v["version"]) for v in VECTORS})


class Faults(logging.Handler):
    """Collects the tracebacks that are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, line: logging.LogRecord) -> None:
        if line.exc_info:
            self.found.append(logging.Formatter().format(line))


class Parsers:
    """A broker with a listener that asks for a login, and a partition without a listener."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        (folder / "login").mkdir()
        settings = oauth_settings(folder) | {"sasl.enabled.mechanisms": ",".join(ALL_MECHANISMS)}
        login = stack.enter_context(login_broker(folder / "login", **settings))
        self.logins = login.broker.node.bound.logins()
        host, port = login.safe.split(":")
        self.address = (host, int(port))
        self.faults = Faults()
        logging.getLogger().addHandler(self.faults)
        stack.callback(logging.getLogger().removeHandler, self.faults)
        self.led = led_broker(folder, stack)
        self.stored = Stored(folder / "stored")
        stack.callback(self.stored.close)

    def conversation(self, data: bytes) -> None:
        """Sends the bytes to the listener, and no more: the broker closes the connection."""
        with contextlib.suppress(ConnectionError):
            with socket.create_connection(self.address, timeout=CLOSE_S) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
        assert not self.faults.found, self.faults.found

    def login(self, data: bytes) -> None:
        """The first byte chooses the mechanism. Nobody has a password here, so nobody logs in."""
        session = Session(ALL_MECHANISMS[data[0] % len(ALL_MECHANISMS)] if data else "PLAIN")
        first, _, second = data[1:].partition(NEXT)
        with contextlib.suppress(LoginFailed):
            answer = self.logins.step("SAFE", session, first)
            assert not answer.user
            if answer.exchange:
                nonce = answer.token.partition(b",")[0].removeprefix(b"r=")
                session = session._replace(exchange=answer.exchange)
                answer = self.logins.step("SAFE", session, second.replace(NONCE, nonce))
                assert not answer.user

    def message(self, data: bytes) -> None:
        """Two bytes choose the message. What is read is written and read again as the same."""
        choice, body = int.from_bytes(data[:2], "big"), data[2:]
        name, version = PROGRAMS[choice % len(PROGRAMS)]
        with contextlib.suppress(MalformedMessage):
            program = by_name(name).program(version)
            value, end = program.decode(body)
            assert end <= len(body)
            again = program.encode(value)
            assert program.encode(program.decode_whole(again)) == again

    def request_header(self, data: bytes) -> None:
        with contextlib.suppress(MalformedMessage, UnsupportedVersion):  # no such key
            _, end = decode_request_header(data)
            assert end <= len(data)

    def batches(self, data: bytes) -> None:
        """A record set, read as records and as columns; and produced to the partition."""
        with contextlib.suppress(CorruptRecords):
            for found in decode_batches(data, size_max=SIZE_MAX):
                list(found.records)
        with contextlib.suppress(CorruptRecords):
            read_columns(data, size_max=SIZE_MAX)
        self.produce(produce_frame([("orders", 0, data)], acks=1))
        self.produce(produce_frame([("orders", 0, data)], 2, acks=1))

    def batch(self, data: bytes) -> None:
        """As `batches`, with the length and the checksum that the first batch must have."""
        self.batches(sealed(data))

    def produce(self, data: bytes) -> None:
        with contextlib.suppress(MalformedProduce):
            answer = self.led.native.handle_frame(data)
            while answer is not None and not isinstance(answer, bytes):
                job = self.led.native.decodes.next(0)
                if job is not None:
                    answer_job(job)
                answer = answer.resume(5)

    def compressed(self, data: bytes) -> None:
        for inflate in (lz4_decode, lz4_block, snappy_decode):
            with contextlib.suppress(CorruptInput, TooLarge):
                assert len(inflate(data, SIZE_MAX)) <= SIZE_MAX

    def conversions(self, data: bytes) -> None:
        """Messages of the formats 0 and 1 as a batch: a plain set, and the content of a wrapper.
        Batches and messages in an older format. The result is never larger than it can be."""
        for outer in (None, *WRAPPERS):
            with contextlib.suppress(CannotConvert):
                made = up_convert(data, wrapper=outer, bytes_max=SIZE_MAX)
                assert len(made) <= len(data) + 61
                (found,) = decode_batches(made, size_max=SIZE_MAX)
                assert [r.offset for r in found.records] == list(range(found.count))
        for magic in (0, 1):
            for wrapped in (False, True):
                with contextlib.suppress(CorruptRecords):
                    made = down_convert(data, magic=magic, wrapped=wrapped)
                    assert len(made) <= 5 * len(data)

    def conversion(self, data: bytes) -> None:
        """As `conversions`, with the length and the checksum that the first entry must have."""
        self.conversions(sealed(data))

    def kafka07(self, data: bytes) -> None:
        """The first byte is the type of a request of Kafka 0.7, and the first letter of a stored
        batch that becomes messages of 0.7."""
        with contextlib.suppress(BadRequest):
            asked = parse_request(data[0] % 6 if data else 0, data, 1)
            for row in asked:
                if isinstance(row, ProduceAsked):
                    made = produce_request([row], SIZE_MAX)
                    assert made is None or len(made) <= 3 * SIZE_MAX + 4 * len(data)
        for magic in (0, 1):
            with contextlib.suppress(CorruptRecords, MissingRecords):
                made = messages_of(sealed(data), first_offset=0, magic=magic)
                assert len(made) <= 2 * len(data) + 10

    def down_conversion(self, data: bytes) -> None:
        """Stored bytes that a Fetch of version 1 or 2 converts to messages. The first byte chooses
        the version; and whether the bytes behind the second are decompressed content, whatever the
        batch holds, and compressed messages."""
        choice, content = data[0] if data else 0, data[2:]
        answer = self.stored.fetch(sealed(data[2:]), 1 + choice % 2)
        if isinstance(answer, ParkedFetch):
            job = self.stored.broker.native.conversions.next()
            if choice & 2:
                while job.convert() is not None:
                    if job.content(content) is not None:
                        job.wrap(content)
                job.done()
            else:
                convert_range(job)
            answer = answer.wait()
        assert len(answer) <= 5 * SIZE_MAX

    @property
    def methods(self) -> list[Callable[[bytes], None]]:
        return [getattr(self, name) for name in NAMES]


NAMES = (
    "conversation", "login", "message", "request_header", "batches", "batch", "produce",
    "compressed", "conversions", "conversion", "kafka07", "down_conversion",
)  # fmt: skip


def led_broker(folder: Path, stack: contextlib.ExitStack) -> PartitionBroker:
    system, directory = SystemCalls(), folder / "led"
    directory.mkdir()
    table = PartitionTable(system, Epochs(), node_id=1, durability="os")
    table.add_directory(str(directory), flush_threads=1)
    made = PartitionBroker(table, ProduceHandler(table), system, str(directory), SegmentCache())
    made.topic("orders")
    stack.callback(close, made)
    return made


class Stored:
    """A partition whose log holds bytes that no append has checked, as on a damaged disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.broker = Old(folder, {"t": 1}, threads=False)
        self.log = self.broker.logs["t", 0]
        self.folder = folder / "t-0"

    def fetch(self, data: bytes, version: int) -> bytes | ParkedFetch:
        """Fetches the bytes from the beginning of a log. They keep the place of a batch that was
        appended: its base offset and its last."""
        self.log.truncate_fully_and_start_at(0)
        place = encode_batch([Record(bytes(len(data)), timestamp=1)])
        self.broker.append("t", 0, place)
        [segment] = self.log.segments()
        assert segment.base_offset == 0
        with open(self.folder / f"{0:020d}.log", "r+b") as file:
            file.seek(8)
            file.write(data[8:])
        return self.broker.fetch("t", version)

    def close(self) -> None:
        self.broker.close()


def close(made: PartitionBroker) -> None:
    made.table.close()
    made.table.remove_topic("orders")
    log: LogHandle = made.logs["orders", 0]
    log.close(clean=False)


def sealed(data: bytes) -> bytes:
    """The bytes as one batch, or one message of magic 0 or 1."""
    if len(data) < 21:
        return data
    made = bytearray(data)
    struct.pack_into(">i", made, 8, len(made) - 12)
    if made[16] == 2:
        struct.pack_into(">I", made, 17, crc32c(made[21:]))
    else:
        struct.pack_into(">I", made, 12, crc32(made[16:]))
    return bytes(made)


def old_messages() -> Iterator[bytes]:
    for magic in (0, 1):
        content = inner(magic, 3)
        yield content
        for codec in (1, 2, 3):
            yield wrapper(magic, codec, content, offset=2)
        yield wrapper(magic, 1, wrapper(magic, 1, content))
        yield wrapper(magic, 1, inner(1 - magic, 2))
        yield wrapper(magic, 1, batch())


def seeds() -> Iterator[tuple[str, bytes]]:
    """(name of the method, bytes). None of them logs in: passwords and tokens are wrong."""
    yield from conversations()
    yield from logins()
    for vector in VECTORS:
        index = PROGRAMS.index((vector["api"], vector["version"]))
        yield "message", index.to_bytes(2, "big") + vector["bytes"]
    for key, version, tags in ((18, 0, b""), (18, 3, b"\0"), (36, 2, b"\0"), (3, 12, b"\1\5\1x")):
        yield "request_header", header(key, version, tags)
    for vector in vectors("batches"):
        yield "batches", vector["bytes"]
        yield "batch", vector["bytes"]
        yield "conversions", vector["bytes"]
        yield "conversion", vector["bytes"]
        yield "kafka07", vector["bytes"]
        for choice in range(4):
            yield "down_conversion", bytes([choice, 0]) + vector["bytes"]
    for kind, body in kafka07_requests():
        yield "kafka07", bytes([kind]) + body
    for made in old_messages():
        yield "conversions", made
        yield "conversion", made
        yield "produce", produce_frame([("orders", 0, made)], 2, acks=1)
        for choice in range(4):
            yield "down_conversion", bytes([choice, 0]) + made
    now = int(time.time() * 1000)
    for made in (batch(), *(compressed(codec, [record(timestamp=now)]) for codec in range(5))):
        yield "batch", made
        yield "produce", produce_frame([("orders", 0, made)], acks=1)
        yield "produce", produce_frame([("orders", 0, made)], 8, acks=1)
    for codec in (compression.SNAPPY, compression.LZ4):
        yield "compressed", compression.compress(codec, b"abcd" * 300 + bytes(range(256)))


def kafka07_requests() -> Iterator[tuple[int, bytes]]:
    plain, packed = kafka07.messages([b"one", b""]), kafka07.wrapped([b"two"] * 9)
    for data in (plain, packed, plain + packed, kafka07.message(packed, codec=1)):
        yield 0, kafka07.produce_body("t", 0, data)
        yield 3, b"\0\2" + kafka07.produce_body("t", 0, data) + kafka07.produce_body("u", -1, data)
    fetch = kafka07.fetch_body("t", 0, 5, 100)
    yield 1, fetch
    yield 2, b"\0\2" + fetch * 2
    yield 4, kafka07.place("t", 0) + bytes(12)


def conversations() -> Iterator[tuple[str, bytes]]:
    for version in range(5):
        flexible = version > 2
        body = b"\0\2a\2b\0" if flexible else b""
        yield "conversation", frame(header(18, version, body))
    for version, name in ((0, b"PLAIN"), (1, b"SCRAM-SHA-256"), (1, b"OAUTHBEARER"), (1, b"NONE")):
        chosen = frame(header(17, version, struct.pack(">h", len(name)) + name))
        yield "conversation", chosen
        if version == 0:
            yield "conversation", chosen + frame(UNTRUE)
        for number in (0, 1):
            token = struct.pack(">i", len(UNTRUE)) + UNTRUE
            yield "conversation", chosen + frame(header(36, number, token))
        flexible = b"\0" + bytes([len(UNTRUE) + 1]) + UNTRUE + b"\0"
        yield "conversation", chosen + frame(header(36, 2, flexible))
    yield "conversation", b"\x16\x03\x01\x02\0" + bytes(40)
    yield "conversation", b"GET / HTTP/1.1\r\n\r\n"


def logins() -> Iterator[tuple[str, bytes]]:
    first = b"n,,n=bob,r=abc"
    final = b"c=biws,r=" + NONCE + b",p=" + b"A" * 43 + b"="
    for index, name in enumerate(ALL_MECHANISMS):
        start = bytes([index])
        if name.startswith("SCRAM"):
            yield "login", start + first + NEXT + final
            yield "login", start + b"n,a=b=2Cb,n=b=2Cb,r=abc,tokenauth=true" + NEXT + final
    yield "login", b"\0" + UNTRUE
    oauth = bytes([ALL_MECHANISMS.index("OAUTHBEARER")])
    for token in (signed("other"), signed("r", exp=1), signed("e", iss="other"), unsigned()):
        yield "login", oauth + first_message(token) + NEXT + b"\1"
    yield "login", oauth + first_message("abc", identity="a=bob", extensions="traceId=1\1")
