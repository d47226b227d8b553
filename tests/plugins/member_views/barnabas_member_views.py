"""Page views of members: a partitioner and an encoder in one plugin of the producer.

    serializer.class=member-views
    partitioner.class=member-views
    plugin.member-views.large.members=17,42

A page view is a pair (member, page) and goes out as `member<TAB>page`. The views of a member stay
in one partition; a few large members have the last partition to themselves.
"""

from barnabas import hookimpl
from barnabas.hooks import Option


class MemberViews:
    """Encodes page views and keeps those of a member together."""

    OPTIONS = {"large.members": Option("list", "members that share the last partition", ())}

    def __init__(self, options):
        self.large = {int(member) for member in options["large.members"]}

    @hookimpl
    def encode(self, data, is_key):
        if is_key:
            return [str(member).encode() for member in data]
        return [f"{member}\t{page}".encode() for member, page in data]

    @hookimpl
    def decode(self, data, is_key):
        if is_key:
            return [int(member) for member in data]
        views = [view.decode().split("\t", 1) for view in data]
        return [(int(member), page) for member, page in views]

    @hookimpl
    def choose_partitions(self, keys, partition_count):
        last = partition_count - 1
        return [last if key in self.large or not last else key % last for key in keys]
