"""Errors of checkpoints (each names the file; the call wrote nothing) and of the sink."""


class CheckpointError(Exception):
    """The base of the errors of a checkpoint; `str` gives one plain line."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class TruncatedFile(CheckpointError):
    """The file is shorter than its content must be."""


class ChecksumMismatch(CheckpointError):
    """The file does not match the `.crc` file beside it."""


class UnknownVersion(CheckpointError):
    """A later Spark wrote the file, or it is not a file of a checkpoint."""


class ConcurrentWriter(CheckpointError):
    """The file exists already: another process writes this checkpoint too."""


class IncompleteCheckpoint(CheckpointError):
    """A file that the checkpoint needs is missing."""


class UnfinishedBatch(CheckpointError):
    """The newest batch was begun and is not committed."""


class SinkError(Exception):
    """The sink cannot write a batch; `str` gives one plain line."""


class BadRows(SinkError):
    """The rows lack a column that a record needs, or it has a wrong type, or a topic is null."""


class LostRows(SinkError):
    """Decided transactions timed out before the driver committed them."""
