"""kcat: librdkafka 2.0 from a shell, one process for each call."""

import subprocess
from collections.abc import Sequence

from compat.client import Client
from compat.support import CALL_TIMEOUT_S, Read, Sent

# The tests send neither of these bytes.
RECORD_END, KEY_END = b"\x1e", b"\x1f"
LARGE = ("-X", "message.max.bytes=12582912", "-X", "receive.message.max.bytes=33554432")
LARGE_FETCH = ("-X", "fetch.message.max.bytes=12582912", "-X", "fetch.max.bytes=12582912")


class Kcat(Client):
    name = "kcat"
    family = "librdkafka"
    sets_timestamps = False
    headers_differ = False
    null_header_values = False
    keeps_empty = False  # it sends empty as null (-Z), or not at all

    def run(self, *arguments: str, given: bytes = b"") -> bytes:
        """Returns kcat's output. Raises AssertionError with its error output."""
        settings = [word for item in self.settings.items() for word in ("-X", "=".join(item))]
        done = subprocess.run(
            ["kcat", "-b", self.address, "-q", *settings, *arguments],
            input=given,
            capture_output=True,
            timeout=CALL_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int] | None:
        options = ["-P", "-t", topic, "-p", str(partition), "-Z", "-z", codec, *LARGE]
        options += ["-D", RECORD_END.decode(), "-K", KEY_END.decode(), "-X", "acks=all"]
        options += ["-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "linger.ms=100"]
        assert len({record.headers for record in records}) == 1, "kcat: one set of headers a call"
        for name, value in records[0].headers:
            assert value is not None
            options += ["-H", f"{name}={value.decode()}"]
        lines = [(r.key or b"") + KEY_END + (r.value or b"") for r in records]
        self.run(*options, given=RECORD_END.join(lines))
        return None

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Read]:
        options = ["-C", "-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count)]
        output = self.run(*options, *LARGE, *LARGE_FETCH, "-f", r"%o %T %K %S %h\n%k%s")
        found: list[Read] = []
        at = 0
        while at < len(output):
            line_end = output.index(b"\n", at)
            offset_text, timestamp, key_size, size, headers = output[at:line_end].split(b" ", 4)
            at = line_end + 1
            key, at = piece(output, at, int(key_size))
            value, at = piece(output, at, int(size))
            found.append(
                Read(
                    offset=int(offset_text),
                    timestamp=int(timestamp),
                    timestamp_type=None,
                    key=key,
                    value=value,
                    headers=tuple(header(text) for text in headers.split(b",") if text),
                )
            )
        assert len(found) == count, f"kcat read {len(found)} of {count}"
        return found

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        told = self.run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        offset = int(told.rsplit("offset", 1)[1])
        return offset if offset >= 0 else None

    def close(self) -> None:
        """Nothing stays open between calls."""


def piece(output: bytes, at: int, size: int) -> tuple[bytes | None, int]:
    """kcat prints -1 as the size of null."""
    return (None, at) if size < 0 else (output[at : at + size], at + size)


def header(text: bytes) -> tuple[str, bytes | None]:
    name, _, value = text.partition(b"=")
    return name.decode(), None if value == b"NULL" else value
