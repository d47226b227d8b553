"""Features of the cluster (KIP-584): what this build can do, and which level of it is agreed on.

FEATURES is the one table. A feature is in it once it works, with the levels that work: who brings
group.version, transaction.version, share.version or streams.version to work adds a line or raises
its last level, and asks `level` before doing what the level allows. Level 0 means switched off.

The levels agreed on are in /feature of the metadata tree, as Kafka keeps them there. A feature
that is not in the node has the newest level of this build.

metadata.version names Kafka's releases: level 30 is 4.3, whose clients and tools were compared
with this broker. Its metadata is not KRaft's, so there is no older level to go back to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from barnabas.errors import InvalidUpdateVersion
from barnabas.metadata import znodes
from barnabas.metadata.tree import (
    BadVersion,
    CreateNode,
    MetadataTree,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SessionState,
    SetData,
    StoreUnavailable,
    WatchEvent,
)
from barnabas.metadata.znode_json import ZnodeDataError

log = logging.getLogger("barnabas.controller")

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
ATTEMPTS_MAX = 10


class Feature(NamedTuple):
    """The levels that this build can do."""

    name: str
    version_min: int
    version_max: int


FEATURES = (
    Feature("metadata.version", 30, 30),
    Feature("group.version", 0, 1),
    Feature("share.version", 0, 1),
    Feature("transaction.version", 0, 2),
)


class FeatureUpdate(NamedTuple):
    """A requested level of a feature."""

    name: str
    level: int
    upgrade_type: int


class Features:
    """One per node. Any thread may read; updates come one at a time."""

    def __init__(
        self, tree: MetadataTree, node_id: int, features: Iterable[Feature] = FEATURES
    ) -> None:
        self.supported = {feature.name: feature for feature in features}
        self._tree = tree
        self._node_id = node_id
        self._lock = threading.Lock()
        self._levels: Mapping[str, int] = {}
        self.epoch = 0  # grows with every change
        self.on_change: list[Callable[[], object]] = []
        tree.add_listener(self._session_changed)
        self._load()

    def level(self, name: str) -> int:
        """The level agreed on; 0 for a feature that this build does not have."""
        feature = self.supported.get(name)
        if feature is None:
            return 0
        level = self._levels.get(name, feature.version_max)
        return min(max(level, feature.version_min), feature.version_max)

    def finalized(self) -> dict[str, int]:
        """The features that are switched on, with their levels."""
        return {name: level for name in self.supported if (level := self.level(name)) > 0}

    def update(self, updates: Iterable[FeatureUpdate], validate_only: bool = False) -> None:
        """All or none. Raises InvalidUpdateVersion."""
        with self._lock:
            asked = list(updates)
            for update in asked:
                wrong = self._refusal(update)
                if wrong:
                    raise InvalidUpdateVersion(
                        "The update failed for all features since the following feature had an"
                        f" error: Invalid update version {update.level} for feature"
                        f" {update.name[:60]}. {wrong}"
                    )
            if asked and not validate_only:
                self._store({update.name: update.level for update in asked})

    def _refusal(self, update: FeatureUpdate) -> str | None:
        """Why not, in the words that Kafka's tool prints."""
        feature = self.supported.get(update.name)
        if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            return "The controller does not support the given upgrade type."
        if update.level < 0:
            return "A feature version cannot be less than 0."
        if feature is None:
            return f"Local controller {self._node_id} does not support this feature."
        if not feature.version_min <= update.level <= feature.version_max:
            return (
                f"Local controller {self._node_id} only supports versions"
                f" {feature.version_min}-{feature.version_max}"
            )
        if update.level < self.level(update.name) and update.upgrade_type == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to"
                " either safe or unsafe downgrade."
            )
        return None

    def _store(self, changed: Mapping[str, int]) -> None:
        for _attempt in range(ATTEMPTS_MAX):
            levels, version = self._read()
            data = znodes.encode_features({**levels, **changed})
            write: Operation = CreateNode(znodes.FEATURES_PATH, data)
            if version is not None:
                write = SetData(znodes.FEATURES_PATH, data, version)
            try:
                self._tree.multi([write])
            except MultiFailed as failed:
                if not isinstance(failed.error, BadVersion | NodeExists | NoNode):
                    raise failed.error from None
                continue  # another node was faster
            self._load()
            return
        raise StoreUnavailable(f"other nodes changed features {ATTEMPTS_MAX} times meanwhile")

    def _read(self, watched: bool = False) -> tuple[Mapping[str, int], int | None]:
        """The levels of the node and its version, None where there is no node."""
        watch = self._changed if watched else None
        try:
            data, stat = self._tree.get(znodes.FEATURES_PATH, watch)
        except NoNode:
            if watched:
                self._tree.exists(znodes.FEATURES_PATH, watch)
            return {}, None
        try:
            return znodes.decode_features(data), stat.version
        except ZnodeDataError as error:
            log.error("%s is left out: %s", znodes.FEATURES_PATH, error)
            return {}, stat.version

    def _load(self) -> None:
        levels, version = self._read(watched=True)
        for name, level in levels.items():
            feature = self.supported.get(name)
            if feature is not None and level != min(level, feature.version_max):
                log.warning(
                    "%s is agreed on at level %d; this build has %d at most",
                    name, level, feature.version_max,
                )  # fmt: skip
        self._levels, self.epoch = levels, 0 if version is None else version + 1
        for changed in self.on_change:
            changed()

    def _changed(self, _event: WatchEvent) -> None:
        self._load()

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            return
        try:
            self._load()  # watches of a lost session are gone
        except StoreUnavailable as error:
            log.warning("features are not current: %s", error)
