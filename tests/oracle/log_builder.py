"""Logs for tests: a directory, a table of system calls, and the log over it."""

from pathlib import Path

from barnabas.cext.log.log_handle import LogHandle, LogSettings
from barnabas.cext.log.segment import SegmentCache
from barnabas.cext.memory.epoch import Epochs
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.record.records import Record, encode_batch

NOW = 1_700_000_000_000


def batch(*values: bytes, at: int = NOW, **fields) -> bytes:
    return encode_batch([Record(value, timestamp=at) for value in values], **fields)


class Disk:
    """One partition directory that can be opened again and again, as after a restart."""

    def __init__(self, directory: Path, **settings):
        self.directory = directory
        self.settings = LogSettings(**({"segment_index_bytes": 4096} | settings))
        self.system = SystemCalls()
        self.epochs = Epochs()
        self.cache = SegmentCache(open_segments_max=4)

    def open(self, **options) -> LogHandle:
        return LogHandle.open(
            self.directory,
            system=self.system,
            epochs=self.epochs,
            cache=self.cache,
            settings=self.settings,
            **options,
        )

    def file(self, base: int, suffix: str) -> Path:
        return self.directory / f"{base:020d}{suffix}"

    def names(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()}
