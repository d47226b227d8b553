"""Kafka's own tool reads what a compaction wrote: empty batches, delete horizons, markers,
codecs."""

import random
import re
import subprocess
from contextlib import closing

import pytest
from compaction.test_compaction_model import Author, Disk, one_pass, rows
from compat.support import QUICK_HEAP, rival

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(rival.missing("4.3.1") is not None, reason=str(rival.missing("4.3.1"))),
]
DUMP_LOG = rival.tool("4.3.1", "dump-log", heap=QUICK_HEAP)
RECORD = re.compile(r"^\| offset: (\d+) .*?keySize: (-?\d+) valueSize: (-?\d+)", re.M)


def test_dump_log_reads_compacted_segments(tmp_path):
    disk = Disk(tmp_path, segment_bytes=2500, index_interval_bytes=300)
    with closing(disk.open()) as log:
        author = Author(log, random.Random(3))
        checkpoint = 0
        for _ in range(2):
            author.write(90)
            author.end_all()
            log.roll()
            checkpoint = one_pass(disk, log, checkpoint, author.now)[1].first_dirty
        kept = rows(log)
        bases = [info.base_offset for info in log.segments()[:-1]]
    assert any(not row.records for row in kept), "no batch was emptied"
    assert any(row.horizon >= 0 for row in kept), "no batch has a horizon"
    assert any(row.commit is not None for row in kept) and {row.codec for row in kept} >= {0, 1, 4}
    files = ",".join(str(disk.file(base, ".log")) for base in bases)
    command = [*DUMP_LOG, "--files", files, "--deep-iteration"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    told = done.stdout
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in told and told.count("isvalid: true") == len(kept)
    found = [tuple(map(int, match)) for match in RECORD.findall(told)]
    expected = [
        (offset, len(key), -1 if value is None else len(value))
        for row in kept
        for offset, _, key, value in row.records
    ]
    assert found == expected
    indexes = ",".join(str(disk.file(base, ".index")) for base in bases)
    checked = subprocess.run(
        [*DUMP_LOG, "--files", indexes, "--index-sanity-check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.returncode == 0 and "passed sanity check" in checked.stdout, checked.stdout
    assert "Mismatch" not in checked.stdout
