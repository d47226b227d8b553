"""Features of the cluster (KIP-584): the levels that this build supports, and the finalized levels.

FEATURES is the one table of the supported levels. A change that implements a new level of
group.version, transaction.version, share.version or streams.version adds a line here or raises
`version_max`, and its code calls `level` before it uses the feature. Level 0 means switched off.

The finalized levels are in /feature of the metadata tree, as in Kafka. A feature that is not in
that node has the level `unfinalized`, which no release raises. So a level that is new in a release
takes effect when it is finalized (UpdateFeatures), and not before: until then the cluster can go
back to the release before, and no record or request is there that it does not know.

Each broker registers the levels that it supports, and a feature has no higher level than every
registered broker supports. A broker of Apache Kafka in ZooKeeper mode registers none: while one is
registered, group.version (KIP-848), share.version, streams.version (KIP-1071) and
transaction.version (KIP-890) are at level 0, so that no record is written to an internal topic
which that broker could not load. When such a broker comes or goes, /feature is written again:
clients take levels of a later epoch only. It then also says that the features are held: without a
finalized level they stay at level 0 after the last such broker has left, so that it can come back
and load every record.

streams.version came with level 1 in force: a broker without it registers no level for it, and skips
the records of streams groups when it loads them.

metadata.version names Kafka's releases: level 30 is 4.3, whose clients and tools were compared
with this broker. The metadata of this broker is not KRaft's, so that there is no older level for a
downgrade.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from barnabas.errors import InvalidUpdateVersion
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import Broker, ClusterState
from barnabas.metadata.tree import (
    BadVersion,
    CreateNode,
    MetadataError,
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
from barnabas.metadata.znodes import FeatureLevels

log = logging.getLogger("barnabas.controller")

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
ATTEMPTS_MAX = 10
REGISTRATION_MIN = 5  # the version that Kafka writes from inter.broker.protocol.version 2.7 on


class Feature(NamedTuple):
    """The levels of a feature that this build supports."""

    name: str
    version_min: int
    version_max: int
    unfinalized: int  # the level that counts while none is finalized


FEATURES = (
    Feature("metadata.version", 30, 30, unfinalized=30),
    Feature("group.version", 0, 1, unfinalized=1),
    Feature("share.version", 0, 1, unfinalized=1),
    Feature("streams.version", 0, 1, unfinalized=1),
    Feature("transaction.version", 0, 2, unfinalized=2),
)


def registered_features() -> dict[str, tuple[int, int]]:
    """The levels that a broker of this build registers. They begin at 1: Kafka 2.8 cannot read a
    registration with another range. metadata.version is left out, because it has one level."""
    return {row.name: (1, row.version_max) for row in FEATURES if row.version_min == 0}


class FeatureUpdate(NamedTuple):
    """A requested level of a feature."""

    name: str
    level: int
    upgrade_type: int


class Features:
    """The features of the cluster. Any thread may read; a lock orders the updates."""

    def __init__(
        self, tree: MetadataTree, node_id: int, features: Iterable[Feature] = FEATURES
    ) -> None:
        self.supported = {feature.name: feature for feature in features}
        self._tree = tree
        self._node_id = node_id
        self._lock = threading.Lock()
        self._levels: Mapping[str, int] = {}
        self._held = False  # features without a finalized level are at level 0
        self._brokers: Mapping[int, Broker] | None = None
        self._limits: dict[str, int] = {}  # what every registered broker supports
        self.epoch = 0  # grows with every change
        self.on_change: list[Callable[[], object]] = []
        tree.add_listener(self._session_changed)
        self._load()

    def level(self, name: str) -> int:
        """Returns the finalized level, within the supported ones; 0 for a feature that this build
        does not have."""
        feature = self.supported.get(name)
        if feature is None:
            return 0
        held = self._held and feature.version_min == 0
        level = self._levels.get(name, 0 if held else feature.unfinalized)
        level = min(level, self._limits.get(name, level))
        return min(max(level, feature.version_min), feature.version_max)

    def apply(self, state: ClusterState) -> None:
        """Notes what the registered brokers support; call it with each new state."""
        before, brokers = self._brokers, state.brokers
        if brokers is before:
            return
        self._brokers = brokers
        limits = {
            name: min(
                (row.registration.features.get(name, (0, 0))[1] for row in brokers.values()),
                default=feature.version_max,
            )
            for name, feature in self.supported.items()
            if feature.version_min == 0
        }
        if limits == self._limits:
            return
        self._limits = limits
        self._log_limits(brokers)
        if before is not None or self._must_hold():
            self._begin_epoch()
        for changed in self.on_change:
            changed()

    def _must_hold(self) -> bool:
        """Returns whether a broker of Apache Kafka is registered, and /feature does not say so."""
        brokers = (self._brokers or {}).values()
        return not self._held and any(not row.registration.features for row in brokers)

    def _log_limits(self, brokers: Mapping[int, Broker]) -> None:
        off = [name for name, level in self._limits.items() if level == 0]
        if not off:
            held = [name for name in self._limits if self._held and name not in self._levels]
            if held:
                log.warning(
                    "%s: still at level 0, so that brokers of Apache Kafka may come back. When they"
                    " will not, use: barnabas cluster features%s",
                    ", ".join(held),
                    "".join(f" {name}={self._limits[name]}" for name in held),
                )
            return
        without = [
            str(broker_id)
            for broker_id, row in sorted(brokers.items())
            if any(name not in row.registration.features for name in off)
        ]
        log.warning(
            "%s: at level 0 while broker %s is registered, which does not support them, as Apache"
            " Kafka in ZooKeeper mode. Kafka must run with inter.broker.protocol.version 2.8 or"
            " later: it gives topics no topic id before, and this broker serves none without.",
            ", ".join(off),
            ", ".join(without),
        )
        for broker_id, row in sorted(brokers.items()):
            if row.registration.version < REGISTRATION_MIN:
                log.error(
                    "broker %d runs with an inter.broker.protocol.version below 2.8 (its"
                    " registration has version %d): set 2.8 or later and restart it",
                    broker_id,
                    row.registration.version,
                )

    def _begin_epoch(self) -> None:
        """Writes /feature again, so that its version, the epoch of the levels, grows."""
        try:
            data, stat = self._tree.get(znodes.FEATURES_PATH)
            hold = self._must_hold()
            if hold:
                data = znodes.hold_features(data)
            self._tree.set(znodes.FEATURES_PATH, data, stat.version)
            self._held = self._held or hold
        except (NoNode, BadVersion):
            pass  # the controller makes it; another broker was faster. `_load` sees it
        except ZnodeDataError:
            pass  # `_load` has logged it
        except MetadataError as error:
            log.warning("clients may use former levels of features: %s", error)

    def finalized(self) -> dict[str, int]:
        """Returns the levels of the features that are not at level 0."""
        return {name: level for name in self.supported if (level := self.level(name)) > 0}

    def update(self, updates: Iterable[FeatureUpdate], validate_only: bool = False) -> None:
        """Applies all updates or none (UpdateFeatures). Raises InvalidUpdateVersion."""
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
        """Returns why an update is refused, in the words that Kafka's tool prints; None when it is
        valid."""
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
        if update.level > self._limits.get(update.name, update.level):
            return (
                "Could not apply finalized feature update because brokers were found to have"
                " incompatible versions for the feature."
            )
        if update.level < self.level(update.name) and update.upgrade_type == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to"
                " either safe or unsafe downgrade."
            )
        return None

    def _store(self, changed: Mapping[str, int]) -> None:
        for _attempt in range(ATTEMPTS_MAX):
            found, version = self._read()
            data = znodes.encode_features(found._replace(levels={**found.levels, **changed}))
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
        raise StoreUnavailable(
            f"gave up after {ATTEMPTS_MAX} attempts: other brokers changed features at the"
            " same time"
        )

    def _read(self, watched: bool = False) -> tuple[FeatureLevels, int | None]:
        """Returns the data of the node /feature and the node's version; None without a node.
        `watched`: sets a watch, also on the creation of the node."""
        watch = self._changed if watched else None
        try:
            data, stat = self._tree.get(znodes.FEATURES_PATH, watch)
        except NoNode:
            if watched:
                self._tree.exists(znodes.FEATURES_PATH, watch)
            return FeatureLevels({}), None
        try:
            return znodes.decode_features(data), stat.version
        except ZnodeDataError as error:
            log.error("ignoring %s: %s", znodes.FEATURES_PATH, error)
            return FeatureLevels({}), stat.version

    def _load(self) -> None:
        found, version = self._read(watched=True)
        for name, level in found.levels.items():
            feature = self.supported.get(name)
            if feature is not None and level != min(level, feature.version_max):
                log.warning(
                    "feature %s has level %d in the cluster; this build supports up to %d",
                    name, level, feature.version_max,
                )  # fmt: skip
        self._levels, self._held = found
        self.epoch = 0 if version is None else version + 1
        if self._must_hold():
            self._begin_epoch()  # its watch loads again
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
            log.warning(
                "cannot read the features; the broker uses those that it read last: %s", error
            )
