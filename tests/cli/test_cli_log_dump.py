"""`barnabas log dump` with files of this test, of our broker and of Apache Kafka."""

import json
import struct
from pathlib import Path

import pytest
from cli.conftest import Ran, run_command

from barnabas import Broker
from barnabas.cext.codec.crc import crc32c
from barnabas.cext.record.records import Record
from barnabas.storage.checkpoints import write_leader_epochs, write_offsets
from barnabas.wire.batches import encode_batch

SEGMENT = "00000000000000000100"
AT_MS = 1_700_000_000_000
SHOWN = "2023-11-14T22:13:20.000Z"


def batch(offset: int, *values: bytes, codec: int = 0, **more: int | bool) -> bytes:
    records = [
        Record(value, b"k%d" % i, timestamp=AT_MS, headers=[("h", b"1")])
        for i, value in enumerate(values)
    ]
    return encode_batch(records, base_offset=offset, codec=codec, leader_epoch=3, **more)


def dump(*words: str | Path) -> Ran:
    return run_command("log", "dump", *map(str, words))


def rows_of(ran: Ran) -> list[dict]:
    found = [json.loads(line) for line in ran.text.splitlines()]
    for row in found:
        row.pop("file")
    return found


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", [".log", ".log.deleted", ".log.swap"])
def test_batches_with_their_facts(tmp_path: Path, suffix: str):
    first, second = batch(100, b"a", b"b"), batch(102, b"c", codec=4)
    path = written(tmp_path, SEGMENT + suffix, first + second)
    ran = dump(path, "--json")
    assert ran.status == 0
    rows = rows_of(ran)
    assert [(r["position"], r["baseOffset"], r["lastOffset"], r["count"]) for r in rows] == [
        (0, 100, 101, 2),
        (len(first), 102, 102, 1),
    ]
    assert [row["codec"] for row in rows] == ["none", "zstd"]
    assert {row["leaderEpoch"] for row in rows} == {3}
    table = dump(path).text.splitlines()
    assert len(table) == 3 and SHOWN in table[1]


def test_records_in_the_form_asked_for(tmp_path: Path):
    path = written(tmp_path, SEGMENT + ".log", batch(100, b"caf\xc3\xa9", b"\xff\x01"))
    values = [
        [
            record["value"]
            for record in rows_of(dump(path, "--records", "--json", *form))[0]["records"]
        ]
        for form in ((), ("--values-as", "hex"), ("--values-as", "base64"), ("--values-as", "int"))
    ]
    assert values[0] == ["café", "\\xff\x01"]
    assert values[1] == ["636166c3a9", "ff01"]
    assert values[2] == ["Y2Fmw6k=", "/wE="]
    assert values[3] == [str(int.from_bytes(b"caf\xc3\xa9", "big")), "-255"]
    lines = dump(path, "--records", "--keys-as", "hex").text.splitlines()
    assert (
        lines[1] == f"  offset 100, timestamp {SHOWN}, key 6b30, value café, headers [['h', '1']]"
    )


def test_a_wrong_crc_is_shown_and_passed_over(tmp_path: Path):
    first, second = bytearray(batch(100, b"a")), batch(101, b"b")
    first[-3] ^= 1
    path = written(tmp_path, SEGMENT + ".log", bytes(first) + second)
    for words in ((), ("--records",)):
        ran = dump(path, "--json", *words)
        rows = rows_of(ran)
        assert ran.status == 1
        assert "checksum does not match" in rows[0]["problem"] and rows[0]["baseOffset"] == 100
        assert rows[1]["baseOffset"] == 101 and "problem" not in rows[1]


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        (batch(101, b"torn")[:-1], "torn"),
        (b"\0" * 4096, "zeros"),
        (b"\0" * 5, "5 bytes at the end"),
        (b"\0" * 8 + b"\0\0\0\x05" + b"\0\0\0\0\x02" + b"\0" * 40, "too small"),
        (b"\0" * 8 + b"\0\0\0\x50" + b"\0\0\0\0\x07" + b"\0" * 40, "magic 7"),
    ],
)
def test_what_cannot_be_passed_over_ends_the_dump(tmp_path: Path, tail: bytes, problem: str):
    whole = batch(100, b"a")
    ran = dump(written(tmp_path, SEGMENT + ".log", whole + tail), "--json")
    rows = rows_of(ran)
    assert ran.status == 1 and len(rows) == 2
    assert rows[1]["position"] == len(whole) and problem in rows[1]["problem"]


def test_a_file_of_any_bytes_gives_no_traceback(tmp_path: Path):
    """The name decides how a file is read; its bytes are not trusted."""
    damage = bytes(range(256)) * 3 + b"\xff" * 5
    names = [SEGMENT + s for s in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")]
    names += ["meta.properties", "partition.metadata", "leader-epoch-checkpoint"]
    for name in [*names, "replication-offset-checkpoint"]:
        for data in (damage, b"", b"\x7f" * 3):
            ran = dump(written(tmp_path, name, data))
            assert ran.status in (0, 1), name
            assert "unexpected" not in ran.err, name


def test_indexes_without_preallocated_space(tmp_path: Path):
    offsets = struct.pack(">iiii", 5, 1000, 9, 2000) + b"\0" * 80
    times = struct.pack(">qiqi", AT_MS, 5, AT_MS + 1, 9) + b"\0" * 120
    index = dump(written(tmp_path, SEGMENT + ".index", offsets), "--json")
    assert rows_of(index) == [{"offset": 105, "position": 1000}, {"offset": 109, "position": 2000}]
    found = rows_of(dump(written(tmp_path, SEGMENT + ".timeindex", times), "--json"))
    assert found == [
        {"timestamp": AT_MS, "offset": 105},
        {"timestamp": AT_MS + 1, "offset": 109},
    ]
    odd = dump(written(tmp_path, SEGMENT + ".index", offsets[:19]), "--json")
    assert odd.status == 1 and "3 bytes at the end" in rows_of(odd)[-1]["problem"]


def test_aborted_transactions(tmp_path: Path):
    entry = struct.pack(">hqqqq", 0, 7, 100, 110, 105)
    path = written(tmp_path, SEGMENT + ".txnindex", entry)
    assert rows_of(dump(path, "--json")) == [
        {"producerId": 7, "firstOffset": 100, "lastOffset": 110, "lastStableOffset": 105}
    ]


def test_producer_state_and_its_crc(tmp_path: Path):
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 1, 41, 99, 2, AT_MS, -1, -1)
    sound = struct.pack(">hI", 1, crc32c(body)) + body
    ran = dump(written(tmp_path, SEGMENT + ".snapshot", sound), "--json")
    assert ran.status == 0
    row = rows_of(ran)[0]
    assert (row["producerId"], row["lastSequence"], row["lastOffset"]) == (7, 41, 99)
    damaged = dump(written(tmp_path, SEGMENT + ".snapshot", sound[:-1] + b"\0"), "--json")
    assert damaged.status == 1 and "CRC" in rows_of(damaged)[0]["problem"]


def test_text_files(tmp_path: Path):
    path = tmp_path / "replication-offset-checkpoint"
    write_offsets(path, {("news", 0): 12, ("news", 1): 3})
    assert rows_of(dump(path, "--json")) == [
        {"topic": "news", "partition": 0, "offset": 12},
        {"topic": "news", "partition": 1, "offset": 3},
    ]
    write_leader_epochs(tmp_path, [(0, 0), (4, 120)])
    found = rows_of(dump(tmp_path / "leader-epoch-checkpoint", "--json"))
    assert found == [{"epoch": 0, "startOffset": 0}, {"epoch": 4, "startOffset": 120}]
    path.write_text("0\n3\nnews 0 12\nnews x\n")
    broken = dump(path, "--json")
    assert broken.status == 1
    assert [row.get("problem") for row in rows_of(broken)] == [
        None,
        "cannot read 'news x'",
        "'3' lines are announced and 2 are here",
    ]


def test_a_name_that_no_log_file_has(tmp_path: Path):
    ran = dump(written(tmp_path, "notes.txt", b"x"))
    assert ran.status == 1 and "notes.txt is not a log file" in ran.err


def files_of(folder: Path) -> list[Path]:
    partition = sorted(folder.glob("dumped-*/*"))
    wanted = (".log", ".index", ".timeindex", ".snapshot", ".metadata", "-checkpoint")
    return [
        path
        for path in [*partition, *folder.glob("*checkpoint"), folder / "meta.properties"]
        if path.name.endswith((*wanted, ".properties"))
    ]


def dump_all(folder: Path) -> None:
    """Every file that a broker wrote is understood and valid; the segment has 3 records."""
    files = files_of(folder)
    assert {path.suffix for path in files} >= {".log", ".index", ".timeindex", ".properties"}
    ran = dump(*files, "--json")
    assert ran.status == 0, ran.text
    segment = next(path for path in files if path.suffix == ".log")
    records = [r for row in rows_of(dump(segment, "--records", "--json")) for r in row["records"]]
    assert [record["value"] for record in records] == ["a", "b", "c"]


def test_the_files_of_our_broker(tmp_path: Path):
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(settings) as broker:
        at = ("-b", broker.bootstrap_servers)
        assert run_command("produce", "dumped", *at, stdin=b"a\nb\nc\n").status == 0
    dump_all(tmp_path)


@pytest.mark.java
def test_the_files_of_apache_kafka(kafka):
    at = ("-b", kafka.address)
    assert run_command("produce", "dumped", *at, stdin=b"a\nb\nc\n").status == 0
    dump_all(kafka.log_dir)


def test_a_directory_is_walked(tmp_path: Path):
    """F31: `log dump DIR` said that the directory is not a log file."""
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(settings) as broker:
        at = ("-b", broker.bootstrap_servers)
        assert run_command("produce", "dumped", *at, stdin=b"a\nb\nc\n").status == 0
    (tmp_path / "dumped-0" / "notes.txt").write_text("not ours")
    ran = dump(tmp_path, "--json")
    assert ran.status == 0, ran.err
    rows = map(json.loads, ran.text.splitlines())
    seen = {Path(row["file"]).relative_to(tmp_path) for row in rows}
    assert {Path("meta.properties"), Path("dumped-0/00000000000000000000.log")} <= seen
    assert all("notes.txt" not in str(path) for path in seen)
    assert "dumped-0/00000000000000000000.log:\n" in dump(tmp_path / "dumped-0").text
    with open(tmp_path / "dumped-0" / "00000000000000000000.log", "r+b") as file:
        file.seek(30)
        file.write(b"\xff\xff")
    assert dump(tmp_path / "dumped-0").status == 1, "damage counts in a directory too"


def test_what_is_not_there_is_said_as_missing(tmp_path: Path):
    """F31: a missing file and a directory gave the same line."""
    ran = dump(tmp_path / "MISSING")
    assert ran.status == 1 and ran.err.startswith("barnabas: there is no file ")
    ran = dump(tmp_path)
    assert ran.status == 1 and "holds no file of a log" in ran.err
