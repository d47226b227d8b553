"""AlterConfigs and IncrementalAlterConfigs: checks a change, stores it in the metadata tree, then
applies it.

    /config/topics/T           settings that a topic overrides
    /config/brokers/N          dynamic settings of one broker
    /config/brokers/<default>  dynamic settings of every broker

A change of a topic checks in the same multi that the topic's node exists, so that no configuration
outlives its topic. A value is on disk before it is in force: `load` finds every acknowledged change
at the next start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from barnabas.config import ConfigError, DynamicConfig, TopicConfig, check_topic
from barnabas.config.broker_config import THREAD_COUNTS, THREADS_MAX
from barnabas.config.incremental import APPEND, DELETE, SET, SUBTRACT, apply_operation
from barnabas.config.layers import value_in_force
from barnabas.config.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Setting
from barnabas.config.values import parse_value, text_of
from barnabas.controller.stored_passwords import StoredPasswords, is_password
from barnabas.errors import (
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)
from barnabas.metadata import znodes
from barnabas.metadata.cluster_state import ClusterState, ClusterStateReader
from barnabas.metadata.tree import (
    CheckVersion,
    CreateNode,
    MetadataTree,
    MultiFailed,
    NoNode,
    Operation,
    SetData,
    TooLarge,
)

log = logging.getLogger("barnabas.controller")

OPERATIONS = (SET, DELETE, APPEND, SUBTRACT)


# Takes "topic" or "broker", its name and the values; raises PolicyViolation.
Policy = Callable[[str, str, Mapping[str, str | None]], None]


class Change(NamedTuple):
    """One operation on one setting; the operations are those of barnabas.config.incremental."""

    name: str
    operation: int
    value: str | None


class ConfigChanges:
    """The configurations of topics and brokers, changed by one thread at a time."""

    def __init__(
        self,
        tree: MetadataTree,
        reader: ClusterStateReader,
        config: DynamicConfig,
        passwords: StoredPasswords,
        policy: Policy = lambda *_: None,
    ) -> None:
        """`policy` asks the plugins about a change, and is shown no passwords."""
        self._tree = tree
        self._reader = reader
        self._config = config
        self._passwords = passwords
        self._policy = policy
        self._lock = threading.Lock()

    def change_topic(
        self, name: str, changes: Sequence[Change], validate_only: bool = False
    ) -> None:
        """Applies operations to a topic's settings (IncrementalAlterConfigs). `validate_only`
        checks and stores nothing. Raises the KafkaError for the answer."""
        with self._lock:
            texts = self._texts_of_topic(name)
            current = TopicConfig(texts, self._config)
            for change in changes:
                setting = TOPIC_SETTINGS.get(change.name)
                in_force = text_of(current[change.name]) if setting is not None else None
                text = changed_text(change, setting, in_force)
                texts.pop(change.name, None)
                if text is not None:
                    texts[change.name] = text
            self._store_topic(name, texts, validate_only)

    def replace_topic(
        self, name: str, texts: Mapping[str, str], validate_only: bool = False
    ) -> None:
        with self._lock:
            self._texts_of_topic(name)
            for setting_name, text in texts.items():
                check_value(setting_name, TOPIC_SETTINGS.get(setting_name), text)
            self._store_topic(name, dict(texts), validate_only)

    def change_broker(
        self, broker_id: int | None, changes: Sequence[Change], validate_only: bool = False
    ) -> None:
        """Applies operations to the dynamic settings of a broker, or of every broker if `broker_id`
        is None (IncrementalAlterConfigs). Raises the KafkaError for the answer."""
        with self._lock:
            layers = self._config.layers_of(broker_id)
            found: dict[str, str | None] = {}
            for change in changes:
                setting = BROKER_SETTINGS.get(change.name)
                in_force = text_of(value_in_force(setting, layers)) if setting else None
                found[change.name] = changed_text(change, setting, in_force, InvalidRequest)
            self._store_broker(broker_id, found, validate_only)

    def replace_broker(
        self, broker_id: int | None, texts: Mapping[str, str], validate_only: bool = False
    ) -> None:
        with self._lock:
            gone: dict[str, str | None] = dict.fromkeys(self._config.texts(broker_id))
            for name, text in texts.items():
                check_value(name, BROKER_SETTINGS.get(name), text, InvalidRequest)
            self._store_broker(broker_id, {**gone, **texts}, validate_only)

    def _texts_of_topic(self, name: str) -> dict[str, str]:
        topic = self._reader.state.topic(name)
        if topic is None or topic.deleting:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
        return dict(self._reader.state.config("topics", name))

    def _store_topic(self, name: str, texts: dict[str, str], validate_only: bool) -> None:
        try:
            check_topic(texts, self._config)
        except ConfigError as error:
            raise InvalidConfig(" ".join(error.problems)) from error
        self._policy("topic", name, texts)
        if not validate_only:
            try:
                self._write("topics", name, texts, [CheckVersion(znodes.topic_path(name))])
            except NoNode as error:
                raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.") from error

    def _store_broker(
        self, broker_id: int | None, changes: Mapping[str, str | None], validate_only: bool
    ) -> None:
        try:
            texts = self._config.alter(broker_id, changes, validate_only=True)
        except ConfigError as error:
            raise InvalidRequest(" ".join(error.problems)) from error
        for setting_name, text in changes.items():
            if setting_name in THREAD_COUNTS and text is not None:
                _check_thread_count(setting_name, int(text), self._config.integer(setting_name))
        shown = {n: "[hidden]" if t and is_password(n) else t for n, t in changes.items()}
        self._policy("broker", "" if broker_id is None else str(broker_id), shown)
        if validate_only:
            return
        node = znodes.DEFAULT_ENTITY if broker_id is None else str(broker_id)
        is_own = broker_id == self._config.node_id
        stored = self._passwords.encoded(texts) if is_own else texts
        self._write("brokers", node, stored, [])
        self._config.replace(broker_id, texts)

    def _write(
        self, kind: str, name: str, texts: Mapping[str, str], also: Sequence[Operation]
    ) -> None:
        path = znodes.config_path(kind, name)
        data = znodes.encode_config(texts)
        is_new = self._tree.exists(path) is None
        write: Operation = CreateNode(path, data) if is_new else SetData(path, data)
        try:
            self._tree.multi([*also, write, *notes_of(self._tree, f"{kind}/{name}")])
        except TooLarge as error:
            raise InvalidConfig(f"the configuration is too large to store: {error}") from error
        except MultiFailed as failed:
            raise failed.error from failed
        self._reader.refresh_config([f"{kind}/{name}"])


def notes_of(tree: MetadataTree, entity: str) -> list[Operation]:
    """Returns the operations that notify other nodes, on a shared tree, of a changed
    configuration."""
    if not tree.is_shared:
        return []
    note = znodes.ConfigChange(entity).encode()
    return [CreateNode(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True)]


def follower(
    config: DynamicConfig, began: ClusterState, passwords: StoredPasswords
) -> Callable[[ClusterState], None]:
    """Returns a function that applies the broker configurations that other nodes altered; call it
    with every new state. `began`: the loaded state."""
    before = {path: texts for path, texts in began.configs.items() if _is_broker(path)}

    def apply(state: ClusterState) -> None:
        nonlocal before
        now = {path: texts for path, texts in state.configs.items() if _is_broker(path)}
        if now == before:
            return
        gone: dict[str, Mapping[str, str]] = {path: {} for path in before.keys() - now.keys()}
        before, changed = now, {p: t for p, t in now.items() if before.get(p) != t}
        for path, texts in {**gone, **changed}.items():
            _take_over(config, path, texts, passwords)

    return apply


def _is_broker(path: str) -> bool:
    return path.startswith("brokers/")


def load(
    config: DynamicConfig,
    tree: MetadataTree,
    reader: ClusterStateReader,
    passwords: StoredPasswords,
) -> list[str]:
    """Loads the dynamic settings of brokers from the tree at the start. It logs a value that this
    build does not accept, and leaves it out. Returns the settings of this broker that it could not
    decrypt. Raises MetadataError."""
    unreadable: list[str] = []
    for path, texts in reader.state.configs.items():
        if _is_broker(path):
            unreadable += _take_over(config, path, texts, passwords)
    own = f"brokers/{config.node_id}"
    if passwords.can_store and passwords.decoded(reader.state.configs.get(own, {})).is_old:
        stored = {**reader.state.configs[own], **passwords.encoded(config.texts(config.node_id))}
        tree.set(znodes.config_path("brokers", str(config.node_id)), znodes.encode_config(stored))
        reader.refresh_config([own])
        log.info("Encrypted the passwords of /config/%s by password.encoder.secret.", own)
    return unreadable


def _take_over(
    config: DynamicConfig, path: str, texts: Mapping[str, str], passwords: StoredPasswords
) -> list[str]:
    """Returns the settings of this broker that cannot be decrypted."""
    name = path.partition("/")[2]
    if name != znodes.DEFAULT_ENTITY and not name.isdecimal():
        log.warning("/config/%s names no broker; ignoring it", path)
        return []
    broker_id = None if name == znodes.DEFAULT_ENTITY else int(name)
    unreadable: list[str] = []
    if broker_id == config.node_id:
        texts, unreadable, _ = passwords.decoded(texts)
    for setting in unreadable:
        log.error(
            "/config/%s: %s cannot be decrypted, and is ignored: it was stored with another"
            " password.encoder.secret. Give that as password.encoder.old.secret, or set the value"
            " again.",
            path,
            setting,
        )
    for problem in config.replace(broker_id, texts):
        log.warning("/config/%s: %s", path, problem)
    return unreadable


def changed_text(
    change: Change,
    setting: Setting | None,
    in_force: str | None,
    wrong_value: type[KafkaError] = InvalidConfig,
) -> str | None:
    """Returns the value of a setting after `change`; None: the setting has no value of its own
    then. `in_force`: its present value. Raises InvalidRequest for a malformed change,
    `wrong_value` for an invalid value, InvalidConfig for an operation on lists only."""
    try:
        text = apply_operation(change.name, setting, change.operation, in_force, change.value)
    except ConfigError as error:
        malformed = change.value is None or change.operation not in OPERATIONS
        refusal = InvalidRequest if malformed else InvalidConfig
        raise refusal(" ".join(error.problems)) from error
    if text is not None:
        check_value(change.name, setting, text, wrong_value)
    return text


def _check_thread_count(name: str, asked: int, now: int) -> None:
    least, most = now // 2, min(now * 2, THREADS_MAX)
    if not least <= asked <= most:
        raise InvalidRequest(
            f"Invalid value {asked} for configuration {name}: there are {now} threads, and one"
            f" change may make them {least} to {most}"
        )


def check_value(
    name: str, setting: Setting | None, text: str, wrong_value: type[KafkaError] = InvalidConfig
) -> None:
    """Raises `wrong_value` for an invalid value, in Kafka's wording: users search for it. Kafka
    answers InvalidRequest for a setting of a broker (DynamicBrokerConfig.validate)."""
    if setting is None:
        return  # the caller for the scope handles an unknown name
    try:
        parse_value(setting, text)
    except ConfigError as error:
        shown = "[hidden]" if setting.is_sensitive else text
        raise wrong_value(
            f"Invalid value {shown} for configuration {name}: {' '.join(error.problems)}"
        ) from error
