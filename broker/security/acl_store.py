"""The access rules of the metadata tree: read, followed and changed, on both stores.

A writer checks the version of each node, so no change of two concurrent writers is lost. On a
shared tree it
adds a note in the same commit; every node watches the notes and reads the patterns that they name.
Readers have one frozen AccessRules at a time, which is replaced in one step. When rules cannot be
read, access to their resource is denied to everyone, because a deny rule may be among them.

A change of several patterns is one commit where the store's limits allow it. After a crash between
two commits some patterns have changed and the others have not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from barnabas.metadata.tree import (
    BadVersion,
    CreateNode,
    DeleteNode,
    InvalidPath,
    MetadataError,
    MetadataTree,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SessionState,
    SetData,
    StoreUnavailable,
    TooLarge,
    WatchEvent,
)
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.metadata.znodes import ACL_CHANGES_PATHS
from barnabas.security import acl_nodes
from barnabas.security.access_rules import (
    AccessControlEntry,
    AccessRules,
    Entries,
    ResourcePattern,
)
from barnabas.security.acl_codes import ALL, DENY, EVERY_PRINCIPAL, WILDCARD

log = logging.getLogger("barnabas.security")

ATTEMPTS_MAX = 10
COMMIT_PATTERNS_MAX = 1000
UNREADABLE = frozenset({AccessControlEntry(EVERY_PRINCIPAL, WILDCARD, ALL, DENY)})

Outcomes = Mapping[ResourcePattern, MetadataError | None]


class AclStore:
    """One per node; changed by one thread at a time, read by any."""

    def __init__(
        self, tree: MetadataTree, changed: Callable[[AccessRules], object] = lambda _rules: None
    ) -> None:
        """Reads the rules; `changed` is called with each new state of them before the change that
        made it is answered. Raises MetadataError."""
        self.rules = AccessRules()
        self._tree = tree
        self._changed = changed
        self._lock = threading.RLock()  # one replacement at a time
        self._seen = [""] * len(ACL_CHANGES_PATHS)  # the last note of each
        tree.ensure_paths(acl_nodes.PATHS)
        tree.add_listener(self._session_changed)
        self.load()

    def load(self) -> None:
        """Reads all rules, with new watches."""
        with self._lock:
            # Watches before values: a change in between fires a watch and is read again.
            for at, path in enumerate(ACL_CHANGES_PATHS):
                notes = self._tree.children(path, self._noted)
                self._seen[at] = max(notes, default="")
            found: dict[ResourcePattern, Collection[AccessControlEntry]] = {}
            for root in (acl_nodes.LITERAL_ROOT, acl_nodes.PREFIXED_ROOT):
                for node in self._tree.subtree(root):
                    try:
                        pattern = acl_nodes.pattern_of(node.path)
                    except ZnodeDataError as error:
                        log.error("ignoring the access rules of %s: %s", node.path, error)
                        continue
                    if pattern is not None:
                        found[pattern] = _readable(node.path, node.data)
            self._publish(AccessRules(found))

    def change(self, added: Entries, removed: Entries) -> Outcomes:
        """Adds and removes rules. Returns the error of each pattern, or None when its change is
        durable and in force on this broker. Raises StoreUnavailable: the rules may have changed,
        and are read again when the store is back."""
        outcomes: dict[ResourcePattern, MetadataError | None] = {}
        with self._lock:
            patterns = list(dict.fromkeys([*added, *removed]))
            for at in range(0, len(patterns), COMMIT_PATTERNS_MAX):
                part = patterns[at : at + COMMIT_PATTERNS_MAX]
                self._write(part, added, removed, outcomes)
            self._refresh(patterns)
        return outcomes

    def _write(
        self,
        patterns: Sequence[ResourcePattern],
        added: Entries,
        removed: Entries,
        outcomes: dict[ResourcePattern, MetadataError | None],
    ) -> None:
        """Writes the patterns in one commit, or in two parts when it is refused for one of them."""
        try:
            self._commit(patterns, added, removed)
        except (TooLarge, InvalidPath, ZnodeDataError) as error:
            if len(patterns) == 1:
                outcomes[patterns[0]] = error
                return
            middle = len(patterns) // 2
            self._write(patterns[:middle], added, removed, outcomes)
            self._write(patterns[middle:], added, removed, outcomes)
        except MetadataError as error:
            outcomes.update(dict.fromkeys(patterns, error))
        else:
            outcomes.update(dict.fromkeys(patterns))

    def _commit(
        self, patterns: Sequence[ResourcePattern], added: Entries, removed: Entries
    ) -> None:
        for _attempt in range(ATTEMPTS_MAX):
            operations = [
                operation
                for pattern in patterns
                for operation in self._operations(
                    pattern, frozenset(added.get(pattern, ())), frozenset(removed.get(pattern, ()))
                )
            ]
            if not operations:
                return
            try:
                self._tree.multi(operations)
                return
            except MultiFailed as failed:
                if not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                    raise failed.error from failed
        raise StoreUnavailable(
            f"gave up after {ATTEMPTS_MAX} attempts: other brokers changed these rules at the"
            " same time"
        )

    def _operations(
        self,
        pattern: ResourcePattern,
        added: frozenset[AccessControlEntry],
        removed: frozenset[AccessControlEntry],
    ) -> list[Operation]:
        path = acl_nodes.path_of(pattern)
        # From the node itself: a change of another broker may not have been read yet.
        try:
            data, stat = self._tree.get(path)
        except NoNode:
            data, stat = b"", None
        now = acl_nodes.decode(data)
        then = (now - removed) | added
        if then == now:
            return []
        if stat is None:
            write: Operation = CreateNode(path, acl_nodes.encode(then))
        elif then:
            write = SetData(path, acl_nodes.encode(then), stat.version)
        else:
            write = DeleteNode(path, stat.version)
        if not self._tree.is_shared:
            return [write]
        note_path, note = acl_nodes.note_path_and_data(pattern)
        return [write, CreateNode(note_path, note, sequence=True)]

    def _refresh(self, patterns: Iterable[ResourcePattern]) -> None:
        """Reads the rules of these patterns again."""
        changed = {}
        for pattern in patterns:
            try:
                path = acl_nodes.path_of(pattern)
                found = _readable(path, self._tree.get(path)[0])
            except (NoNode, InvalidPath, TooLarge):
                found = frozenset()
            if found != self.rules.entries_of(pattern):
                changed[pattern] = found
        if changed:
            self._publish(self.rules.replaced(changed))

    def _publish(self, rules: AccessRules) -> None:
        self.rules = rules
        self._changed(rules)

    def _noted(self, _event: WatchEvent) -> None:
        with self._lock:
            patterns: dict[ResourcePattern, None] = {}
            seen = list(self._seen)
            for at, parent in enumerate(ACL_CHANGES_PATHS):
                notes = self._tree.children(parent, self._noted)
                for name in sorted(name for name in notes if name > self._seen[at]):
                    path = f"{parent}/{name}"
                    try:
                        patterns[acl_nodes.decode_note(path, self._tree.get(path)[0])] = None
                    except (NoNode, ZnodeDataError) as error:
                        log.warning("reading all access rules again: note %s: %s", path, error)
                        self.load()
                        return
                    seen[at] = name
            self._refresh(patterns)
            self._seen = seen

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            return
        try:
            self.load()  # watches of a lost session are gone
        except StoreUnavailable as error:
            log.warning(
                "cannot read the access rules; the broker uses those that it read last: %s", error
            )


def _readable(path: str, data: bytes) -> frozenset[AccessControlEntry]:
    try:
        return acl_nodes.decode(data)
    except ZnodeDataError as error:
        log.error("%s cannot be read, and its resource is denied to everyone: %s", path, error)
        return UNREADABLE
