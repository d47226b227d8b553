"""Errors of a scan. barnabas.client defines the errors of brokers and connections."""


class ScanError(Exception):
    """The base of the errors of a scan; `str` gives one plain line that names topic, partition or
    file."""


class OutOfRange(ScanError):
    """The partition does not have the requested offsets."""

    def __init__(self, topic: str, partition: int, asked: int, earliest: int, latest: int) -> None:
        super().__init__(
            f"partition {partition} of topic {topic} has offsets {earliest} to {latest}:"
            f" {asked} was asked for"
        )
        self.topic, self.partition = topic, partition
        self.asked, self.earliest, self.latest = asked, earliest, latest


class TopicRecreated(ScanError):
    """The topic was deleted and created again during the scan."""


class NoFilesHere(ScanError):
    """The partition's files are not on this machine, or not in the expected place."""


class DamagedFiles(ScanError):
    """The files lack records that they must have, or are damaged."""
