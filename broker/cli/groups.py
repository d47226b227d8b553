"""`barnabas groups`: shows the members and the lag of groups; moves their offsets; deletes them."""

import argparse
import csv
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.cli.connecting import (
    actions_of,
    cluster_of,
    json_lines_option,
    json_option,
    speaks_to_broker,
)
from barnabas.cli.consume import moment, numbers
from barnabas.cli.output import count_of, did, fail, json_document, say, table
from barnabas.client import EARLIEST, LATEST, Cluster, list_offsets
from barnabas.client.groups import (
    Group,
    GroupMember,
    Offsets,
    commit_offsets,
    committed_offsets,
    delete_groups,
    list_groups,
)
from barnabas.client.share_groups import PROTOCOL as SHARE
from barnabas.client.share_groups import (
    SharePosition,
    alter_share_offsets,
    describe_share_group,
    share_positions,
)
from barnabas.client.streams_groups import describe_committing_group
from barnabas.errors import GroupIdNotFound, UnknownTopicOrPartition, UnsupportedVersion

EPILOG = """\
examples:
  barnabas groups list
  barnabas groups describe readers                committed offsets, lag, members and partitions
  barnabas groups reset readers --topic news --to earliest --dry-run
  barnabas groups reset readers --topic news:0,2 --to 1200
  barnabas groups reset readers --all-topics --to-time 2026-01-31T12:00:00Z
  barnabas groups reset readers --topic news --shift -10
  barnabas groups reset readers --file offsets.csv  lines of TOPIC,PARTITION,OFFSET
  barnabas groups delete readers

The actions work on share groups too; their lag counts the records that are not acknowledged yet.
A group can be reset while it has no members. An offset outside a partition becomes its first offset
or its end.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    action = actions_of(parser, EPILOG, ACTIONS)
    found = action("list", "list groups")
    found.add_argument("--state", metavar="STATE", help="only groups in this state: Stable, Empty")
    json_option(found)
    describe = action("describe", "show offsets, lag and members of groups")
    describe.add_argument("groups", metavar="GROUP", nargs="+")
    json_option(describe)
    reset = action("reset", "set the committed offsets of a group")
    reset.add_argument("group", metavar="GROUP")
    _where(reset)
    _whither(reset)
    reset.add_argument("--dry-run", action="store_true", help="only show what would be set")
    json_option(reset)
    delete = action("delete", "delete groups with their committed offsets")
    delete.add_argument("groups", metavar="GROUP", nargs="+")
    json_lines_option(delete)


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic",
        dest="topics",
        metavar="TOPIC[:N,N]",
        action="append",
        default=[],
        help="a topic, or some of its partitions; may be repeated",
    )
    parser.add_argument(
        "--all-topics",
        action="store_true",
        help="all topics for which the group has committed offsets",
    )


def _whither(parser: argparse.ArgumentParser) -> None:
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to", metavar="OFFSET", type=place, help="earliest, latest or an offset")
    to.add_argument(
        "--to-time", type=moment, metavar="TIME", help="the first record at or after a time"
    )
    to.add_argument(
        "--shift",
        type=int,
        metavar="COUNT",
        help="move by this number of records; a negative number moves back",
    )
    to.add_argument("--file", metavar="FILE", help="lines of TOPIC,PARTITION,OFFSET")


def place(text: str) -> str | int:
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither earliest, latest nor an offset")


@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        return int(arguments.act(cluster, arguments))


def _list(cluster: Cluster, arguments: argparse.Namespace) -> int:
    rows = [
        {"group": row.group_id, "state": row.state, "type": row.kind, "protocol": row.protocol_type}
        for row in list_groups(cluster)
        if arguments.state is None or row.state.lower() == arguments.state.lower()
    ]
    if arguments.json:
        json_document(rows)
    elif rows:
        table(("group", "state", "type", "protocol"), [list(row.values()) for row in rows])
    else:
        say("there are no groups")
    return 0


def _describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    documents = []
    for group_id in arguments.groups:
        group = _found(cluster, group_id)
        if group.protocol_type == SHARE:
            rows = _positions(cluster, group, share_positions(cluster, group_id))
        else:
            rows = _partitions(cluster, group, committed_offsets(cluster, group_id))
        members = [
            {
                "member": m.member_id,
                "instance": m.instance_id,
                "client": m.client_id,
                "host": m.host,
                "assignment": {topic: list(owned) for topic, owned in m.assignment.items()},
                **_in_consumer_group(group, m),
            }
            for m in group.members
        ]
        document = {"group": group_id, "type": group.kind, "state": group.state}
        if group.epoch is not None:
            document |= {"epoch": group.epoch, "target_epoch": group.target_epoch}
        document |= {"assignor": group.assignor, "partitions": rows, "members": members}
        documents.append(document)
        if not arguments.json:
            _say_group(group)
            columns = ("topic", "partition", "committed", "end", "lag", "member", "client", "host")
            empty = "the group has committed no offsets, and its members own no partitions"
            table(columns, [list(row.values()) for row in rows], empty=empty)
    if arguments.json:
        json_document(documents)
    return 0


def _found(cluster: Cluster, group_id: str) -> Group:
    """Returns a group of any type. Raises GroupIdNotFound."""
    try:
        return describe_committing_group(cluster, group_id)
    except GroupIdNotFound as error:
        try:
            return describe_share_group(cluster, group_id)
        except (GroupIdNotFound, UnsupportedVersion):
            raise error from None


def _positions(
    cluster: Cluster, group: Group, found: dict[str, dict[int, SharePosition]]
) -> list[dict[str, Any]]:
    """Returns a row for each partition of a share group. The lag counts records that are not yet
    acknowledged; several members may read one partition."""
    rows = []
    for topic, partitions in sorted(found.items()):
        ends = _ends(cluster, topic, list(partitions), LATEST)
        for index, at in sorted(partitions.items()):
            readers = [m for m in group.members if index in m.assignment.get(topic, ())]
            rows.append(
                {
                    "topic": topic,
                    "partition": index,
                    "committed": at.start,
                    "end": ends.get(index),
                    "lag": at.lag,
                    "member": ",".join(m.member_id for m in readers) or None,
                    "client": ",".join(m.client_id for m in readers) or None,
                    "host": ",".join(dict.fromkeys(m.host for m in readers)) or None,
                }
            )
    return rows


def _in_consumer_group(group: Group, member: GroupMember) -> dict[str, Any]:
    """Returns the additional fields of a member of a consumer or streams group."""
    if group.epoch is None:
        return {}
    target = {topic: list(owned) for topic, owned in (member.target or {}).items()}
    return {"epoch": member.epoch, "target": target, "type": member.kind}


def _say_group(group: Group) -> None:
    said = f"{group.group_id}: {group.state}, {count_of(len(group.members), 'member')}"
    if group.epoch is None:
        say(said)
        return
    say(f"{said}, {group.kind} group at epoch {group.epoch} (assignment {group.target_epoch})")
    rows = [
        [m.member_id, m.kind, m.epoch, _short(m.assignment), _short(m.target or {})]
        for m in group.members
    ]
    if rows:
        table(("member", "type", "epoch", "owns", "is to own"), rows)


def _short(owned: Mapping[str, Sequence[int]]) -> str:
    """Returns owned partitions as text: `news:0,2 orders:1`."""
    return " ".join(f"{topic}:{','.join(map(str, owned[topic]))}" for topic in sorted(owned))


def _partitions(cluster: Cluster, group: Group, committed: Offsets) -> list[dict[str, Any]]:
    """Returns a row for each partition that has a committed offset or an owner."""
    owners = {
        (topic, index): member
        for member in group.members
        for topic, owned in member.assignment.items()
        for index in owned
    }
    wanted = {(topic, index) for topic, rows in committed.items() for index in rows} | set(owners)
    ends = {
        topic: _ends(cluster, topic, [index for name, index in wanted if name == topic], LATEST)
        for topic in {topic for topic, _ in wanted}
    }
    rows = []
    for topic, index in sorted(wanted):
        offset = committed.get(topic, {}).get(index)
        end, owner = ends[topic].get(index), owners.get((topic, index))
        lag = None if offset is None or end is None else max(end - offset, 0)
        rows.append(
            {
                "topic": topic,
                "partition": index,
                "committed": offset,
                "end": end,
                "lag": lag,
                "member": owner.member_id if owner else None,
                "client": owner.client_id if owner else None,
                "host": owner.host if owner else None,
            }
        )
    return rows


def _ends(cluster: Cluster, topic: str, partitions: list[int], time: int) -> dict[int, int]:
    """Returns the offsets of `time` by partition; leaves out partitions that do not exist."""
    try:
        there = [index for index in partitions if index in cluster.topic(topic).partitions]
    except UnknownTopicOrPartition:
        return {}
    found = list_offsets(cluster, topic, dict.fromkeys(there, time))
    return {index: row.offset for index, row in found.items()}


def _reset(cluster: Cluster, arguments: argparse.Namespace) -> int:
    is_share = _is_share(cluster, arguments.group)
    committed = (
        _starts(cluster, arguments.group)
        if is_share
        else committed_offsets(cluster, arguments.group)
    )
    if arguments.file is not None:
        wanted = read_offsets(arguments.file)
    else:
        if bool(arguments.topics) == arguments.all_topics:
            return fail("no partitions are named. Give --topic TOPIC, or --all-topics.")
        places = _named(cluster, arguments.topics) if arguments.topics else committed
        wanted = _targets(cluster, arguments, places, committed)
    wanted = _within(cluster, wanted)
    rows = [
        {
            "topic": topic,
            "partition": index,
            "from": committed.get(topic, {}).get(index),
            "to": offset,
        }
        for topic, partitions in sorted(wanted.items())
        for index, offset in sorted(partitions.items())
    ]
    if not rows:
        return fail(
            f"group {arguments.group} has no committed offsets to reset. Give --topic TOPIC."
        )
    if not arguments.dry_run:
        (alter_share_offsets if is_share else commit_offsets)(cluster, arguments.group, wanted)
    if arguments.json:
        json_document(rows)
    else:
        table(("topic", "partition", "from", "to"), [list(row.values()) for row in rows])
        say("nothing was changed (--dry-run)" if arguments.dry_run else "the offsets are set")
    return 0


def _is_share(cluster: Cluster, group_id: str) -> bool:
    try:
        return _found(cluster, group_id).protocol_type == SHARE
    except GroupIdNotFound:
        return False


def _starts(cluster: Cluster, group_id: str) -> Offsets:
    """Returns the start offset of a share group in each partition; 0 where it has none yet."""
    return {
        topic: {index: at.start or 0 for index, at in partitions.items()}
        for topic, partitions in share_positions(cluster, group_id).items()
    }


def _named(cluster: Cluster, texts: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for text in texts:
        name, colon, listed = text.partition(":")
        topic = cluster.topic(name)
        wanted = numbers(listed) if colon else list(topic.partitions)
        for index in wanted:
            topic.partition(index)
        found.setdefault(name, []).extend(wanted)
    return found


def _targets(
    cluster: Cluster,
    arguments: argparse.Namespace,
    places: Any,
    committed: Offsets,
) -> Offsets:
    """Returns the new offset of each partition; it may be outside the partition still."""
    targets: Offsets = {}
    for topic, listed in places.items():
        indexes = list(listed)
        if arguments.shift is not None:
            known = committed.get(topic, {})
            missing = [index for index in indexes if index not in known]
            starts = _ends(cluster, topic, missing, EARLIEST)
            targets[topic] = {
                index: known.get(index, starts.get(index, 0)) + arguments.shift for index in indexes
            }
        elif arguments.to_time is not None:
            at = _ends(cluster, topic, indexes, arguments.to_time)
            ends = _ends(cluster, topic, indexes, LATEST)
            targets[topic] = {i: ends[i] if offset < 0 else offset for i, offset in at.items()}
        elif isinstance(arguments.to, int):
            targets[topic] = dict.fromkeys(indexes, arguments.to)
        else:
            time = EARLIEST if arguments.to == "earliest" else LATEST
            targets[topic] = _ends(cluster, topic, indexes, time)
    return targets


def _within(cluster: Cluster, wanted: Offsets) -> Offsets:
    """Returns the offsets; one outside its partition becomes the first offset or the end. Leaves
    out partitions that do not exist."""
    found: Offsets = {}
    for topic, partitions in wanted.items():
        starts = _ends(cluster, topic, list(partitions), EARLIEST)
        ends = _ends(cluster, topic, list(partitions), LATEST)
        found[topic] = {
            index: min(max(offset, starts[index]), ends[index])
            for index, offset in partitions.items()
            if index in ends
        }
    return {topic: partitions for topic, partitions in found.items() if partitions}


def read_offsets(path: str) -> Offsets:
    """Returns the offsets in a file with lines TOPIC,PARTITION,OFFSET, as Kafka's tool writes them.
    A malformed line ends the command with exit status 1."""
    found: Offsets = {}
    with open(path, newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if not row:
                continue
            try:
                topic, partition, offset = row
                found.setdefault(topic, {})[int(partition)] = int(offset)
            except ValueError:
                raise SystemExit(
                    fail(f"{path}, line {number} is not TOPIC,PARTITION,OFFSET: {','.join(row)}")
                ) from None
    return found


def _delete(cluster: Cluster, arguments: argparse.Namespace) -> int:
    delete_groups(cluster, arguments.groups)
    for name in arguments.groups:
        did(arguments.json, f"deleted group {name}", group=name, deleted=True)
    return 0


ACTIONS = {"list": _list, "describe": _describe, "reset": _reset, "delete": _delete}
