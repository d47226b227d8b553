"""Any sequence of appends, rolls, truncations, deletions and restarts equals a list of batches."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from oracle.disk import parse_log
from oracle.log_builder import NOW, Disk, batch

from barnabas.cext.log.log_handle import LogError


class LogModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="barnabas-log-"))
        self.disk = Disk(self.root, segment_bytes=900, index_interval_bytes=150)
        self.log = self.disk.open()
        self.batches = []  # (base, last, bytes after the base offset and the length)
        self.start = self.end = 0
        self.flushed = 0

    def teardown(self):
        self.log.close(clean=False)
        shutil.rmtree(self.root)

    @rule(count=st.integers(1, 4), size=st.integers(0, 300), back=st.integers(0, 50))
    def append(self, count, size, back):
        data = batch(*[b"v" * size] * count, at=NOW + self.end - back)
        if len(data) > 900:
            with pytest.raises(LogError):
                self.log.append(data)
            return
        result = self.log.append(data)
        assert result[:2] == (self.end, self.end + count - 1)
        self.batches.append((self.end, self.end + count - 1, data[16:]))
        self.end += count

    @rule()
    def roll(self):
        self.log.roll()
        assert self.log.segments()[-1].base_offset == self.end

    @rule()
    def flush(self):
        self.log.flush()
        self.flushed = self.end

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data):
        offset = data.draw(st.sampled_from([b[0] for b in self.batches]))
        self.log.truncate_to(offset)
        self.batches = [b for b in self.batches if b[1] < offset]
        self.end = offset
        self.flushed = min(self.flushed, offset)
        self.start = min(self.start, offset)

    @rule(data=st.data())
    def delete(self, data):
        offset = data.draw(st.integers(self.start, self.end))
        self.log.delete_segments_before(offset)
        self.start = max(self.start, self.log.segments()[0].base_offset)
        self.batches = [b for b in self.batches if b[0] >= self.log.segments()[0].base_offset]

    @rule(data=st.data())
    def raise_start(self, data):
        self.start = data.draw(st.integers(self.start, self.end))
        assert self.log.advance_log_start(self.start) == self.start

    @rule(clean=st.booleans(), torn=st.binary(max_size=70), lose=st.booleans())
    def restart(self, clean, torn, lose):
        """After an unclean stop: bytes of a torn append, and missing or wrong indexes."""
        self.log.close(clean=clean)
        active = max(self.root.glob("*.log"))
        if not clean:
            with active.open("ab") as file:
                file.write(torn)
        if lose:
            for index in self.root.glob("*.index"):
                index.unlink()
            for index in self.root.glob("*.timeindex") if not clean else ():
                index.write_bytes(b"\x01" * 24)
        self.log = self.disk.open(clean=clean, log_start_offset=self.start)
        assert self.log.recovered.cut_bytes == (0 if clean else len(torn))
        self.flushed = self.end

    @invariant()
    def offsets_agree(self):
        log = self.log
        assert (log.start_offset, log.end_offset) == (self.start, self.end)
        assert log.flushed_offset >= min(self.flushed, self.end)

    @invariant()
    def every_batch_is_read_back(self):
        offset, found = self.start, []
        while content := self.log.read(offset, 500):
            whole = 0
            while whole < len(content):  # the slice may end inside a later batch
                size = 12 + int.from_bytes(content[whole + 8 : whole + 12])
                if whole + size > len(content):
                    break
                whole += size
            for base, last, at, size, _ in parse_log(content[:whole]):
                found.append((base, last, content[at + 16 : at + size]))
                offset = last + 1
        assert found == [b for b in self.batches if b[1] >= self.start]


LogModel.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestLogModel = LogModel.TestCase
