"""What can be wrong with a checkpoint (each names the file, and nothing was written then), and with
what is written into topics."""


class CheckpointError(Exception):
    """Base; `str` is one plain line."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class TruncatedFile(CheckpointError):
    """The file is shorter than what it must hold, or its end is no end."""


class ChecksumMismatch(CheckpointError):
    """The `.crc` file beside it was made of other bytes."""


class UnknownVersion(CheckpointError):
    """A later Spark wrote it, or it is no file of a checkpoint at all."""


class ConcurrentWriter(CheckpointError):
    """The file is there already: somebody else writes this checkpoint too."""


class IncompleteCheckpoint(CheckpointError):
    """A file that belongs to the others is missing."""


class UnfinishedBatch(CheckpointError):
    """The newest batch was begun and is not known to have ended."""


class SinkError(Exception):
    """A batch cannot be written; `str` is one plain line."""


class BadRows(SinkError):
    """The rows have no column that a record needs, or one of another type, or a null topic."""


class LostRows(SinkError):
    """Transactions that were decided had timed out before they could be ended."""
