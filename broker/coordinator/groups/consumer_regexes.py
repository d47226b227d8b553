"""Regular expressions that consumers subscribe with: the check, and the topics that match.

Syntax and meaning are RE2's (wire/client_regex.py), and a name must match as a whole, so the time
that a pattern takes is bounded. With many topics it may still be long, so the matching runs on
another thread (`run`), without the coordinator's lock, and until it ends a new expression matches
no topic. The result is written, and the group's epoch increases when it has changed. New and
deleted topics are matched with the next heartbeat, at most once in REFRESH_MS for each group. Next:
client_regex.py in wire/.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.coordinator.groups import consumer_records as records
from barnabas.coordinator.groups.consumer_group import ConsumerGroup, Resolved
from barnabas.coordinator.groups.consumer_member import ConsumerMember
from barnabas.coordinator.groups.group_records import Entry
from barnabas.coordinator.groups.topic_views import TopicViews
from barnabas.errors import InvalidRegularExpression
from barnabas.wire.client_regex import InvalidPattern, Regex

if TYPE_CHECKING:
    from barnabas.coordinator.groups.consumer_access import ConsumerGroups

log = logging.getLogger("barnabas.groups")

REFRESH_MS = 1000
RULES_REFRESH_MS = 10 * 60 * 1000  # as in Kafka: ACLs change what a client may see

Run = Callable[[Callable[[], object]], object]


class Regexes:
    """The regular expressions of all groups of a coordinator."""

    def __init__(self, heartbeats: ConsumerGroups, run: Run) -> None:
        self._heartbeats = heartbeats
        self._coordinator = heartbeats.coordinator
        self._run = run

    def check(self, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> bool:
        """Returns whether a member has changed to an expression whose topics are known. Raises
        InvalidRegularExpression."""
        regex = after.regex
        if not regex or regex == before.regex:
            return bool(before.regex) and regex != before.regex
        if regex not in group.regexes:
            try:
                Regex(regex)
            except InvalidPattern as error:
                raise InvalidRegularExpression(
                    f"SubscribedTopicRegex `{regex[:200]}` is not a valid regular expression:"
                    f" {error}."
                ) from error
        return regex in group.resolved

    def forget_left(
        self, group: ConsumerGroup, before: ConsumerMember, entries: list[Entry]
    ) -> None:
        """Deletes an expression after its last member has left it."""
        regex = before.regex
        if regex and regex not in group.regexes and group.resolved.pop(regex, None) is not None:
            group.writes.removed_regexes.add(regex)
            entries.append(records.regex_tombstone(group.group_id, regex))

    def resolve(self, group: ConsumerGroup, may_see: Callable[[str], bool] | None = None) -> None:
        """Starts the matching of topics when expressions or topics have changed. `may_see` returns
        whether the client of the heartbeat may describe a topic; other topics match no
        expression."""
        if not group.regexes or group.resolving:
            return
        views = self._heartbeats.dependencies.topics()
        unknown = group.regexes.keys() - group.resolved.keys()
        if not unknown:
            last_ms = max(row.at_ms for row in group.resolved.values())
            age_ms = self._coordinator.wall_ms() - last_ms
            is_old = may_see is not None and age_ms >= RULES_REFRESH_MS
            if age_ms < REFRESH_MS or (group.resolved_for is views and not is_old):
                return
        group.resolving = True
        wanted = list(group.regexes)

        def resolved() -> None:
            found: Mapping[str, frozenset[str]] = {}
            try:
                found = topics_of(wanted, filter(may_see, views.names()))
            finally:
                with self._coordinator.lock:
                    group.resolving = False
                    if not group.dead and self._coordinator.groups.get(group.group_id) is group:
                        self._take(group, found, views)

        self._run(resolved)

    def _take(
        self, group: ConsumerGroup, found: Mapping[str, frozenset[str]], views: TopicViews
    ) -> None:
        now_ms = self._coordinator.wall_ms()
        entries: list[Entry] = []
        bump = False
        group.resolved_for = views
        for regex, topics in found.items():
            if regex not in group.regexes:
                continue
            before = group.resolved.get(regex)
            bump = bump or (before.topics if before else frozenset()) != topics
            group.resolved[regex] = row = Resolved(topics, now_ms, now_ms)
            group.writes.removed_regexes.discard(regex)
            if before is None or before.topics != topics:
                entries.append(records.regex_entry(group.group_id, regex, row))
        if not entries:
            return
        epoch, metadata_hash = self._heartbeats.next_epoch(group, bump)
        if (epoch, metadata_hash) != (group.epoch, group.metadata_hash):
            group.epoch, group.metadata_hash = epoch, metadata_hash
            entries.insert(0, records.group_entry(group))
        self._heartbeats.writes.write(group, entries, None)


def topics_of(regexes: Iterable[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Returns the names that each expression matches."""
    found = {}
    names = list(names)
    for text in regexes:
        try:
            regex = Regex(text)
        except InvalidPattern as error:  # another broker accepted it
            log.error("regular expression %.200s matches no topic: %s", text, error)
            found[text] = frozenset[str]()
            continue
        found[text] = frozenset(name for name in names if regex.matches(name))
    return found
