"""What can go wrong in a scan; errors of brokers and of the way to them are the client's."""


class ScanError(Exception):
    """Base; `str` is one plain line that names topic, partition or file."""


class OutOfRange(ScanError):
    """Offsets were asked for that the partition does not have."""

    def __init__(self, topic: str, partition: int, asked: int, earliest: int, latest: int) -> None:
        super().__init__(
            f"partition {partition} of topic {topic} has offsets {earliest} to {latest}:"
            f" {asked} was asked for"
        )
        self.topic, self.partition = topic, partition
        self.asked, self.earliest, self.latest = asked, earliest, latest


class TopicRecreated(ScanError):
    """The topic of that name is another one than it was."""


class NoFilesHere(ScanError):
    """The partition's files are not on this machine, or not where they should be."""


class DamagedFiles(ScanError):
    """The files do not hold what they must."""
