"""`barnabas produce` and `barnabas consume`: the bytes that go in come out."""

import json
import random
from pathlib import Path

import pytest
from cli.conftest import Run, run_command

pytestmark = pytest.mark.takes(seconds=23)

FIVE_MB = 5_000_000


def machine_log() -> bytes:
    """A log file of this machine; where there is none, text of this package."""
    path = Path("/var/log/dpkg.log")
    if path.is_file() and path.stat().st_size > 10_000:
        return path.read_bytes()
    return Path(__file__).read_bytes()


def large_file(path: Path, size_bytes: int) -> Path:
    """The machine's log, repeated to the size, each copy with its own mark."""
    text = machine_log()
    text += b"" if text.endswith(b"\n") else b"\n"
    with open(path, "wb") as file:
        copy = 0
        while file.tell() < size_bytes:
            file.write(f"copy {copy}\n".encode() + text)
            copy += 1
    return path


def test_a_line_in_is_a_line_out(barnabas: Run, topic: str):
    made = barnabas("produce", topic, stdin=b"one\n\ntwo\r\n\xff\xfe\nlast")
    assert made.status == 0 and "produced 5 records" in made.err
    got = barnabas("consume", topic, "--end")
    assert (got.status, got.out) == (0, b"one\n\ntwo\r\n\xff\xfe\nlast\n")


def test_five_megabytes_of_text_come_back_byte_for_byte(barnabas: Run, topic: str, tmp_path: Path):
    path = large_file(tmp_path / "five.log", FIVE_MB)
    assert barnabas("produce", topic, str(path), "--codec", "zstd").status == 0
    assert barnabas("consume", topic, "--end").out == path.read_bytes()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(barnabas: Run, topic: str, codec: str):
    lines = b"".join(b"line %d\n" % i for i in range(500))
    assert barnabas("produce", topic, "--codec", codec, stdin=lines).status == 0
    assert barnabas("consume", topic, "--end").out == lines


def test_a_whole_file_is_one_record(barnabas: Run, topic: str, tmp_path: Path):
    photo = tmp_path / "photo"
    photo.write_bytes(random.Random(1).randbytes(300_000))
    assert barnabas("produce", topic, "--file", str(photo), "--key-text", "p").status == 0
    got = barnabas("consume", topic, "--end", "--separator", "")
    assert got.out == photo.read_bytes()
    assert barnabas("consume", topic, "--end", "--key", "--count", "1").out.startswith(b"p\t")


def test_keys_headers_offsets_and_time(barnabas: Run, topic: str):
    lines = b"k1:v1\nk2:v:2\n"
    made = barnabas(
        "produce", topic, "--key-separator", ":", "--header", "a=b", "--json", stdin=lines
    )
    assert json.loads(made.text) == {"topic": topic, "records": 2, "lastOffsets": {"0": 1}}
    shown = barnabas("consume", topic, "--end", "--offsets", "--headers", "--key").text.splitlines()
    assert [line.split("\t")[:2] for line in shown] == [["0", "0"], ["0", "1"]]
    assert [line.split("\t")[3:] for line in shown] == [["a=b", "k1", "v1"], ["a=b", "k2", "v:2"]]
    assert shown[0].split("\t")[2].endswith("Z")


def test_json_lines_tell_bytes_from_text(barnabas: Run, topic: str):
    barnabas("produce", topic, "--acks", "1", stdin="grüß\n".encode() + b"\xff\n")
    rows = [
        json.loads(line) for line in barnabas("consume", topic, "--end", "--json").text.splitlines()
    ]
    assert [row["value"] for row in rows] == ["grüß", {"base64": "/w=="}]
    assert [row["key"] for row in rows] == [None, None]
    assert [row["offset"] for row in rows] == [0, 1]


def test_where_to_begin_and_to_stop(barnabas: Run, topic: str):
    barnabas("produce", topic, stdin=b"".join(b"%d\n" % i for i in range(10)))

    def values(*options: str) -> list[int]:
        got = barnabas("consume", topic, *options)
        assert got.status == 0, got.err
        return [int(line) for line in got.text.split()]

    assert values("--end") == list(range(10))
    assert values("--from-beginning", "--count", "3") == [0, 1, 2]
    assert values("--offset", "7", "--end") == [7, 8, 9]
    assert values("--offset", "-2", "--end") == [8, 9]
    assert values("--offset", "10", "--end") == []
    assert values("--time", "0", "--end", "--count", "2") == [0, 1]
    assert values("--time", "2100-01-01T00:00:00Z", "--end") == []
    assert values("--count", "0") == []


def test_partitions_are_chosen(barnabas: Run, topic: str):
    assert barnabas("topics", "alter", topic, "--partitions", "3").status == 0
    for index in range(3):
        made = barnabas("produce", topic, "--partition", str(index), stdin=b"p%d\n" % index)
        assert made.status == 0, made.err
    assert barnabas("consume", topic, "--partitions", "1", "--end").out == b"p1\n"
    assert sorted(barnabas("consume", topic, "--end").text.split()) == ["p0", "p1", "p2"]
    bad = barnabas("consume", topic, "--partitions", "0,7", "--end")
    assert bad.status == 1 and "no partition 7, it has partitions 0 to 2" in bad.err


def test_offsets_and_times(barnabas: Run, topic: str):
    barnabas("produce", topic, stdin=b"a\nb\nc\n")
    rows = json.loads(barnabas("offsets", topic, "--time", "0", "--json").text)
    at = rows[0].pop("timestamp")
    assert rows == [{"topic": topic, "partition": 0, "earliest": 0, "latest": 3, "offset": 0}]
    later = json.loads(barnabas("offsets", topic, "--time", str(at + 10**9), "--json").text)
    assert (later[0]["offset"], later[0]["timestamp"]) == (None, None)
    plain = barnabas("offsets", topic).text.splitlines()
    assert plain[0].split() == ["topic", "partition", "earliest", "latest"]
    assert plain[1].split() == [topic, "0", "0", "3"]


def test_a_topic_that_appears_when_it_is_written_to(barnabas: Run, topic: str):
    assert barnabas("produce", f"auto-{topic}", stdin=b"x\n").status == 0
    assert barnabas("consume", f"auto-{topic}", "--end").out == b"x\n"


def test_a_record_that_is_too_large_says_what_to_do(barnabas: Run, topic: str, tmp_path: Path):
    path = tmp_path / "large"
    path.write_bytes(b"x" * 2_000_000)
    got = barnabas("produce", topic, "--file", str(path))
    assert got.status == 1
    assert "MESSAGE_TOO_LARGE" in got.err and "max.message.bytes" in got.err
    assert len(got.err.splitlines()) == 1


def test_a_line_without_its_key_is_named(barnabas: Run, topic: str):
    got = barnabas("produce", topic, "--key-separator", ":", stdin=b"a:b\nbad\n")
    assert got.status == 1 and "line 2 of - has no ':'" in got.err


def test_an_offset_beyond_the_end_is_an_error(barnabas: Run, topic: str):
    """F32: nothing was printed, and the status was 0."""
    assert barnabas("produce", topic, stdin=b"a\nb\nc\n").status == 0
    got = barnabas("consume", topic, "--offset", "4", "--end")
    assert (got.status, got.out) == (1, b"")
    assert got.err.startswith(f"barnabas: --offset 4 is beyond the end of topic {topic}")
    assert "partition 0: 0 to 3" in got.err and "OFFSET_OUT_OF_RANGE" in got.err
    got = barnabas("consume", topic, "--offset", "3", "--end")
    assert (got.status, got.out, got.err) == (0, b"", ""), "the end itself is no error"


def test_records_that_fit_no_segment_together_are_split(barnabas: Run, topic: str):
    """F34: 20,000 short lines were refused by a topic with small segments."""
    assert barnabas("topics", "alter", topic, "--config", "segment.bytes=1048576").status == 0
    lines = b"".join(b"%01000d\n" % i for i in range(3000))
    made = barnabas("produce", topic, "--batch-bytes", "3000000", stdin=lines)
    assert made.status == 0, made.err
    assert barnabas("consume", topic, "--end").out == lines


def test_a_line_larger_than_a_segment_says_what_to_do(our_address: str):
    """F34: the advice did not fit."""
    at = ("-b", our_address)
    name = "small-segments"
    assert run_command("topics", "create", name, "--config", "segment.bytes=14000", *at).status == 0
    got = run_command("produce", name, *at, stdin=b"x" * 20_000)
    assert got.status == 1 and "a record that makes a batch of 20,0" in got.err
    assert "Raise the topic's segment.bytes (`barnabas configs alter topic`)" in got.err
    assert run_command("produce", name, *at, stdin=b"fits\n").status == 0


def test_batches_are_as_large_as_asked_for(barnabas: Run, topic: str):
    made = barnabas("produce", topic, "--batch-bytes", "100", "--json", stdin=b"x" * 50 + b"\ny\n")
    assert made.status == 0 and '"records": 2' in made.text
    got = barnabas("produce", topic, "--batch-bytes", "0", stdin=b"x")
    assert got.status == 2 and "give 1 to 67108864 bytes" in got.err
