"""The pages of consumer groups and share groups: members, offsets, lag; deletion of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.client import LATEST, Cluster, list_offsets
from barnabas.client.groups import (
    Group,
    Offsets,
    committed_offsets,
    delete_groups,
    list_groups,
)
from barnabas.client.share_groups import SharePosition, describe_share_group, share_positions
from barnabas.client.streams_groups import describe_committing_group
from barnabas.console.topics import sliced
from barnabas.console.visit import BadParameter, Moved, Page, Visit

SHARE = "share"
TOPICS_MAX = 100  # of a group, on its page


class Place(NamedTuple):
    """A group in one partition. `end`, `lag`: None when the broker does not tell."""

    topic: str
    partition: int
    offset: int | None
    end: int | None
    lag: int | None


def all_groups(visit: Visit) -> Page:
    """The groups of all brokers that the user may describe, without share groups; `find`: a part of
    the id."""
    return _listed(visit, "")


def share_groups(visit: Visit) -> Page:
    """The share groups, as all_groups."""
    return _listed(visit, SHARE)


def _listed(visit: Visit, kind: str) -> Page:
    find = visit.text("find")
    rows = [
        row
        for row in list_groups(visit.client)
        if find in row.group_id and (row.kind == SHARE) == (kind == SHARE)
    ]
    shown, pages = sliced(visit, rows)
    return Page("groups.html", {"groups": shown, "pages": pages, "find": find, "kind": kind})


def one_group(visit: Visit) -> Page:
    """A group: `id`; `kind`: share for a share group."""
    group_id = visit.needed("id")
    client = visit.client
    is_share = visit.text("kind") == SHARE
    group: Group = (describe_share_group if is_share else describe_committing_group)(
        client, group_id
    )
    if is_share:
        places = visit.part(lambda: _of_shares(share_positions(client, group_id)))
    else:
        places = visit.part(lambda: _of_offsets(client, committed_offsets(client, group_id)))
    topics = sorted({row.topic for row in places.value or ()})
    shown, pages = sliced(visit, places.value or [])
    history = visit.own.history
    lags = {topic: history.lag(group_id, topic) for topic in topics[:TOPICS_MAX]}
    return Page(
        "group.html",
        {
            "group": group,
            "is_share": is_share,
            "places": shown,
            "problem": places.problem,
            "pages": pages,
            "total": sum(row.lag or 0 for row in places.value or ()),
            "lags": {topic: values for topic, values in lags.items() if values},
            "may_delete": visit.may_change and not is_share,
        },
    )


def _of_offsets(client: Cluster, offsets: Offsets) -> Sequence[Place]:
    found = []
    for topic, partitions in sorted(offsets.items())[:TOPICS_MAX]:
        ends = list_offsets(client, topic, dict.fromkeys(partitions, LATEST))
        for index, offset in sorted(partitions.items()):
            end = ends[index].offset
            found.append(Place(topic, index, offset, end, max(end - offset, 0)))
    return found


def _of_shares(positions: Mapping[str, Mapping[int, SharePosition]]) -> Sequence[Place]:
    return [
        Place(topic, index, row.start, None, row.lag)
        for topic, partitions in sorted(positions.items())
        for index, row in sorted(partitions.items())
    ]


def delete(visit: Visit) -> Moved:
    """Deletes a group with its committed offsets: `id`, which `confirmed` repeats."""
    group_id = visit.needed("id")
    if visit.text("confirmed") != group_id.strip():
        raise BadParameter(f"To delete the group, write its id, {group_id}, into the form.")
    delete_groups(visit.client, [group_id])
    return Moved("/groups", f"Group {group_id} and its offsets were deleted.")
