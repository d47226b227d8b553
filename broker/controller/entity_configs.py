"""Configurations of groups and of client metrics subscriptions, in the metadata tree.

    /config/groups/G          settings that a group overrides
    /config/client-metrics/S  settings of a subscription

A configuration needs no existing group or subscription. Without a setting it has no node, and
DescribeConfigs answers with the defaults. A name is any text; the node has the sanitized name.
config_changes.py has the configurations of topics and brokers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence

from barnabas.config import ConfigError, DynamicConfig, GroupConfig, check_group
from barnabas.config.client_metrics import check_client_metrics, describe_client_metrics
from barnabas.config.layers import ConfigEntry
from barnabas.config.settings import GROUP_SETTINGS
from barnabas.config.values import text_of
from barnabas.controller.config_changes import Change, changed_text, check_value, notes_of
from barnabas.errors import InvalidConfig, InvalidRequest
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterStateReader
from barnabas.metadata.tree import (
    CreateNode,
    DeleteNode,
    InvalidPath,
    MetadataTree,
    MultiFailed,
    Operation,
    SetData,
    TooLarge,
)
from barnabas.metadata.znode_json import ZnodeDataError

log = logging.getLogger("barnabas.controller")

GROUPS, CLIENT_METRICS = "groups", "client-metrics"
NAMELESS = {
    GROUPS: "Default group resources are not allowed.",
    CLIENT_METRICS: "Subscription name can't be empty",
}


class EntityConfigs:
    """The configurations of groups and subscriptions; one thread at a time changes them."""

    def __init__(
        self, tree: MetadataTree, reader: ClusterStateReader, config: DynamicConfig
    ) -> None:
        self._tree = tree
        self._reader = reader
        self._config = config
        self._lock = threading.Lock()

    def names(self, kind: str) -> list[str]:
        """Returns the names of the groups or subscriptions (`kind`) that have a configuration."""
        prefix = f"{kind}/"
        found = []
        for path in self._reader.state.configs:
            if path.startswith(prefix):
                try:
                    found.append(znodes.unsanitized(path.removeprefix(prefix)))
                except ZnodeDataError as error:
                    log.warning("ignoring /config/%s: %s", path, error)
        return sorted(found)

    def group(self, name: str) -> GroupConfig:
        """Returns the settings of a group."""
        return GroupConfig(self._texts(GROUPS, name), self._config)

    def describe(self, kind: str, name: str, names: Iterable[str] | None) -> list[ConfigEntry]:
        if kind == GROUPS:
            return self.group(name).describe(names)
        return describe_client_metrics(self._texts(kind, name), names)

    def change(
        self, kind: str, name: str, changes: Sequence[Change], validate_only: bool = False
    ) -> None:
        """Applies operations to a configuration (IncrementalAlterConfigs). `validate_only` checks
        and stores nothing. Raises the KafkaError for the answer."""
        with self._lock:
            texts = self._texts(kind, name)
            current = GroupConfig(texts, self._config)
            for change in changes:
                # A subscription accepts no APPEND: Kafka treats none of its settings as a list.
                setting = GROUP_SETTINGS.get(change.name) if kind == GROUPS else None
                in_force = text_of(current[change.name]) if setting is not None else None
                text = changed_text(change, setting, in_force)
                texts.pop(change.name, None)
                if text is not None:
                    texts[change.name] = text
            self._store(kind, name, texts, validate_only)

    def replace(
        self, kind: str, name: str, texts: Mapping[str, str], validate_only: bool = False
    ) -> None:
        with self._lock:
            for setting_name, text in texts.items():
                setting = GROUP_SETTINGS.get(setting_name) if kind == GROUPS else None
                check_value(setting_name, setting, text)
            self._store(kind, name, dict(texts), validate_only)

    def _texts(self, kind: str, name: str) -> dict[str, str]:
        return dict(self._reader.state.config(kind, _node_name(name)))

    def _store(self, kind: str, name: str, texts: dict[str, str], validate_only: bool) -> None:
        if not name:
            raise InvalidRequest(NAMELESS[kind])
        try:
            if kind == GROUPS:
                check_group(texts, self._config)
            else:
                check_client_metrics(texts)
        except ConfigError as error:
            raise InvalidConfig(" ".join(error.problems)) from error
        if validate_only:
            return
        try:
            self._write(kind, name, texts)
        except (TooLarge, InvalidPath) as error:
            raise InvalidRequest(f"{name[:60]!r} cannot be stored: {error}") from error
        except MultiFailed as failed:
            raise failed.error from failed
        self._reader.refresh_config([f"{kind}/{_node_name(name)}"])

    def _write(self, kind: str, name: str, texts: Mapping[str, str]) -> None:
        path = f"{znodes.CONFIG_PATH}/{kind}/{_node_name(name)}"
        is_new = self._tree.exists(path) is None
        if is_new and not texts:
            return
        data = znodes.encode_config(texts)
        write: Operation = CreateNode(path, data) if is_new else SetData(path, data)
        if is_new:
            self._tree.ensure_path(f"{znodes.CONFIG_PATH}/{kind}")
        notes = notes_of(self._tree, f"{kind}/{_node_name(name)}")
        self._tree.multi([write if texts else DeleteNode(path), *notes])


def _node_name(name: str) -> str:
    """Returns the sanitized name. In `.` and `..`, which no node can have, it escapes the dots
    too."""
    return name.replace(".", "%2E") if name in (".", "..") else znodes.sanitized(name)
