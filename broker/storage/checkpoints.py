"""The small text files of a log directory and of a partition.

    recovery-point-offset-checkpoint  replication-offset-checkpoint     `0`, number of lines, then
    log-start-offset-checkpoint       cleaner-offset-checkpoint         `topic partition offset`
    leader-epoch-checkpoint (in a partition)                            the same with `epoch start`
    partition.metadata (in a partition)                                 `version: 0`, `topic_id: ID`

Every line ends in a newline, except the last one of partition.metadata. A file that cannot be read
counts as absent: its offsets only save work at start (the callers describe what happens then).
Source: the files that Kafka 3.9 and 4.3 write.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from barnabas.storage.replace_file import Replacements, replace_file
from barnabas.wire.uuids import uuid_bytes, uuid_text

RECOVERY_POINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

TopicPartition = tuple[str, int]

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


class DamagedFile(ValueError):
    """A checkpoint file is damaged; the message names the file and the line."""


def _content(path: Path) -> str:
    """Reads a file without a buffer, in a third of the time of read_text: a start reads two of
    these files for each partition."""
    with open(path, "rb", buffering=0) as file:
        return file.readall().decode("utf-8")


def _lines(path: Path) -> list[str]:
    """Returns the lines after version and count; none for an absent or empty file."""
    try:
        text = _content(path)
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{path}: not text ({error.reason})") from error
    if not text:
        return []
    version, _, rest = text.partition("\n")
    count, _, body = rest.partition("\n")
    lines = body.splitlines()
    if version != "0":
        raise DamagedFile(f"{path}: version {version!r}, not 0")
    if _numbers(path, count, [count]) != [len(lines)]:
        raise DamagedFile(f"{path}: says {count[:20]!r} lines and has {len(lines)}")
    return lines


def _numbers(path: Path, line: str, texts: Sequence[str]) -> list[int]:
    """Returns numbers of 0 to INT64_MAX. Raises DamagedFile."""
    try:
        found = [int(text) for text in texts]
    except ValueError:  # also for more digits than Python reads
        raise DamagedFile(f"{path}: cannot read line {line[:300]!r}") from None
    if found and not 0 <= min(found) <= max(found) <= INT64_MAX:
        raise DamagedFile(f"{path}: a number in line {line[:300]!r} is negative or too large")
    return found


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Raises DamagedFile, OSError."""
    found = {}
    for line in _lines(path):
        topic, *rest = line.split(" ")
        if len(rest) != 2 or not topic:
            raise DamagedFile(f"{path}: cannot read line {line!r}")
        partition, offset = _numbers(path, line, rest)
        if partition > INT32_MAX:
            raise DamagedFile(f"{path}: no partition has the number in line {line!r}")
        found[topic, partition] = offset
    return found


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Raises OSError."""
    replace_file(path, offsets_text(offsets))


def offsets_text(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Returns the content of a file of offsets."""
    return _text([f"{t} {p} {offset}" for (t, p), offset in sorted(offsets.items())])


def read_leader_epochs(directory: Path) -> list[tuple[int, int]]:
    """(epoch, start offset), both ascending. Raises DamagedFile, OSError."""
    path = directory / LEADER_EPOCHS
    found: list[tuple[int, int]] = []
    for line in _lines(path):
        numbers = _numbers(path, line, line.split(" "))
        if len(numbers) != 2 or numbers[0] > INT32_MAX:
            raise DamagedFile(f"{path}: cannot read line {line!r}")
        epoch, start = numbers
        if found and (epoch <= found[-1][0] or start < found[-1][1]):
            raise DamagedFile(f"{path}: line {line!r} does not ascend")
        found.append((epoch, start))
    return found


def write_leader_epochs(
    directory: Path, epochs: Iterable[tuple[int, int]], into: Replacements | None = None
) -> None:
    """With `into` it is written when that is committed. Raises OSError."""
    _replace(directory / LEADER_EPOCHS, leader_epochs_text(epochs), into)


def leader_epochs_text(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Returns the content of a leader epoch checkpoint."""
    return _text([f"{epoch} {start}" for epoch, start in epochs])


def _replace(path: Path, data: bytes, into: Replacements | None) -> None:
    if into is None:
        replace_file(path, data)
    else:
        into.add(path, data)


def read_topic_id(directory: Path) -> bytes | None:
    """None where the file is absent. Raises DamagedFile, OSError."""
    path = directory / PARTITION_METADATA
    try:
        rows = dict(line.split(": ", 1) for line in _content(path).splitlines() if line)
        if rows["version"] != "0":
            raise DamagedFile(f"{path}: version {rows['version']!r}, not 0")
        return uuid_bytes(rows["topic_id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise DamagedFile(f"{path}: {error}") from error


def write_topic_id(directory: Path, topic_id: bytes, into: Replacements | None = None) -> None:
    """With `into` it is written when that is committed. Raises OSError."""
    text = f"version: 0\ntopic_id: {uuid_text(topic_id)}"
    _replace(directory / PARTITION_METADATA, text.encode(), into)
