"""The static configuration of a broker: defaults < file < environment < --set.

`Given` reads all sources. `BrokerConfig.load` checks them, raises ConfigError with one line for
each problem, and fills two lists for the log: `warnings` (settings that do not have the expected
effect) and `notices` (how the broker reads a stock file of Kafka). It never changes afterwards;
dynamic_config.py adds the dynamic settings. `ineffective` says why given settings have no effect;
the start and `barnabas config check` both ask it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from barnabas.config.access import access_problems
from barnabas.config.connection_limits import OVERRIDES, listener_limit, parse_overrides
from barnabas.config.data_directory import FORMER
from barnabas.config.environment import settings_from
from barnabas.config.layers import Layers, TypedAccess, value_in_force
from barnabas.config.listeners import Listener, Listeners, is_loopback
from barnabas.config.logins import inter_broker_problems, login_problems, login_setting
from barnabas.config.properties import Property, parse_properties
from barnabas.config.protection import base_name, protection_problems
from barnabas.config.providers import Providers, check_private, read_limited, refers
from barnabas.config.replica_selector import SELECTOR, selector_problems
from barnabas.config.settings import (
    BROKER_SETTINGS,
    LOWERED,
    MEMORY_LIMIT_BYTES,
    ConfigError,
    UnknownSetting,
)
from barnabas.config.spelling import nearest
from barnabas.config.tls import MISSING, TlsSettings, is_built_in, tls_problems, tls_setting
from barnabas.config.values import Value, parse_value

# Keys of stock files that configure other programs than the broker.
SILENT_PREFIXES = ("config.providers.", "plugin.")
SUGGESTIONS_MAX = 20  # each one compares a name with all settings
QUORUM = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
QUEUED_BYTES, REQUEST_BYTES = "queued.max.request.bytes", "socket.request.max.bytes"
# Settings without effect that other lines of the start explain.
EXPLAINED_APART = frozenset(("process.roles", "controller.listener.names", *QUORUM))
NO_LISTENER = "no listener has this name in small letters. It has no effect."
NO_ZOOKEEPER = (
    "this node keeps its metadata in its own embedded store. metadata.store=zookeeper would use"
    " ZooKeeper."
)
# Old names of addresses, and the names that override them.
OLD_ADDRESSES = {
    "host.name": "listeners",
    "port": "listeners",
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
}

# One change may at most halve or double a thread count, as in Kafka: a typing error costs little.
THREAD_COUNTS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
THREADS_MAX = 1000
DEDUPE_BYTES_MIN = 1 << 20

Get = Callable[[str], Value]


def _bounds(family: str, *names: str) -> Iterator[tuple[str, str]]:
    for name in names:
        least, value, most = (f"group.{family}.{bound}{name}" for bound in ("min.", "", "max."))
        yield from ((least, value), (value, most), (least, most))


# The broker's values for groups lie within the bounds that apply to the groups' own values.
GROUP_BOUNDS = (
    *_bounds("consumer", "session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"),
    *_bounds("share", "session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"),
    *_bounds("share", "record.lock.duration.ms", "delivery.count.limit"),
    *_bounds("share", "partition.max.record.locks"),
)


def number(value: Value) -> float:
    """Returns a value whose type in the table is a number."""
    assert isinstance(value, int | float)
    return value


def cross_problems(get: Get) -> list[str]:
    """Returns one line for each pair of settings that contradict each other. `get` returns a typed
    value by name."""
    wrong = []
    for low, high in (
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
        *GROUP_BOUNDS,
    ):
        if number(get(low)) > number(get(high)):
            wrong.append(
                f"{low}={get(low)} is more than {high}={get(high)}. Lower {low} or raise {high}."
            )
    for family in ("group.consumer", "group.share"):
        session, heartbeat = f"{family}.session.timeout.ms", f"{family}.heartbeat.interval.ms"
        if number(get(heartbeat)) >= number(get(session)):
            wrong.append(
                f"{heartbeat}={get(heartbeat)} is not less than {session}={get(session)}: members"
                " would be silent for too long. Lower the first or raise the second."
            )
    queued, largest = number(get("queued.max.request.bytes")), get("socket.request.max.bytes")
    if 0 < queued < number(largest):
        wrong.append(
            f"queued.max.request.bytes={queued} is less than socket.request.max.bytes={largest}:"
            " the largest request could never be read. Raise the first or lower the second."
        )
    wrong += selector_problems(get(SELECTOR))
    return wrong + _thread_problems(get) + _address_problems(get)


def _thread_problems(get: Get) -> list[str]:
    wrong = [
        f"{name}={get(name)} is more than {THREADS_MAX}. Lower it."
        for name in THREAD_COUNTS
        if number(get(name)) > THREADS_MAX
    ]
    buffer, threads = number(get("log.cleaner.dedupe.buffer.size")), get("log.cleaner.threads")
    if buffer < DEDUPE_BYTES_MIN * number(threads):
        wrong.append(
            f"log.cleaner.dedupe.buffer.size={buffer} must be at least 1MB per cleaner thread, and"
            f" log.cleaner.threads={threads}. Raise the first or lower the second."
        )
    return wrong


def _address_problems(get: Get) -> list[str]:
    try:
        overrides = parse_overrides(str(get(OVERRIDES)))
    except ConfigError as error:
        return error.problems
    if get("max.connections.per.ip") == 0 and not overrides:
        return [
            f"max.connections.per.ip can be set to zero only if {OVERRIDES} is set: nobody could"
            " connect."
        ]
    return []


# If one of these is set, the settings of ZooKeeper are checked. zookeeper.connect is not among
# them, because Kafka's stock files set it.
ZOOKEEPER_NAMES = frozenset(
    {"metadata.store", "zookeeper.auth", "zookeeper.set.acl", "zookeeper.ssl.client.enable"}
)


class BrokerConfig(TypedAccess):
    """The static values by name, the origin of each, and the warnings and notices for the log."""

    def __init__(self, values: Mapping[str, str], origins: Mapping[str, str] | None = None) -> None:
        """`values`: texts by name; `origins`: where each was set. Raises ConfigError. Other code
        usually calls `load`."""
        self.values = dict(values)
        self.origins = dict(origins or {})
        self.warnings: list[str] = []
        self.notices: list[str] = []
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name in self.values and other not in self.values:  # one number under two names
                self.values[other] = self.values[name]
                self.origins[other] = f"{name}{self._where(name)}"
        self._make_room_for_a_request()
        self.layers = Layers(self.values)
        self._check()

    def _make_room_for_a_request(self) -> None:
        """Raises a default of queued.max.request.bytes that memory has lowered to the largest
        request that is set."""
        given, default = self.values.get(REQUEST_BYTES, ""), BROKER_SETTINGS[QUEUED_BYTES].default
        if QUEUED_BYTES not in LOWERED or QUEUED_BYTES in self.values or not given.isdigit():
            return
        if int(given) > int(str(default)):
            self.values[QUEUED_BYTES] = given
            self.origins[QUEUED_BYTES] = f"{REQUEST_BYTES}{self._where(REQUEST_BYTES)}"

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        overrides: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> BrokerConfig:
        """Reads the file `path`, the environment (by default that of the process) and `overrides`
        (`name=value` texts); later sources win. Raises ConfigError."""
        given = Given(path, overrides, environ)
        if given.problems:
            raise ConfigError(given.problems)
        config = cls(given.values, given.origins)
        config.warnings[:0] = given.doubles
        return config

    # -- values --------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Value:
        """Returns the typed value in force, with converted units: `log.retention.ms` may come from
        the hours.

        For a name that is not in the table it returns the text that was set, or raises KeyError.
        """
        typed = self.layers.typed
        if name not in typed:
            setting = BROKER_SETTINGS.get(name)
            if setting is None:
                return self.values[name]
            typed[name] = value_in_force(setting, self.layers)
        return typed[name]

    def is_set(self, name: str) -> bool:
        """Returns whether a setting was given under this name, not under a synonym."""
        return name in self.values

    def unknown(self) -> dict[str, str]:
        """Returns the given settings that are not in the table; plugins may have them."""
        return {name: text for name, text in self.values.items() if not _is_known(name)}

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Returns the given texts whose names begin with `prefix`; a plugin reads its settings this
        way."""
        return {n: v for n, v in self.values.items() if n.startswith(prefix)}

    @property
    def node_id(self) -> int:
        """Returns node.id, which equals broker.id; -1: the broker generates an id."""
        return self.integer("node.id")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.names("log.dirs")

    @property
    def log_durability(self) -> str:
        return self.text("log.durability")

    @property
    def metadata_store(self) -> str:
        return self.text("metadata.store")

    @property
    def plugins(self) -> tuple[str, ...]:
        return self.names("plugins")

    @property
    def listeners(self) -> list[Listener]:
        """Returns the listeners to bind."""
        return self._listeners.bound

    @property
    def advertised_listeners(self) -> list[Listener]:
        return self._listeners.advertised

    @property
    def inter_broker_listener_name(self) -> str:
        return self._listeners.inter_broker_name

    # -- checks --------------------------------------------------------------------------------

    def _where(self, name: str) -> str:
        return f" ({self.origins[name]})" if name in self.origins else ""

    def _check(self) -> None:
        problems = protection_problems(self.values) + access_problems(self.values)
        for name, text in self.values.items():
            limit, own = listener_limit(name), tls_setting(name) or login_setting(name)
            known = own.base if own else name
            setting = limit.setting if limit else BROKER_SETTINGS.get(known)
            if setting:
                try:
                    parse_value(setting, text)
                except ConfigError as error:
                    problems += [line + self._where(name) for line in error.problems]
        if not problems:
            problems += cross_problems(self.get) + self._identity_problems()
            try:
                self._listeners = Listeners(self.get, self.is_set)
            except ConfigError as error:
                problems += error.problems
            else:
                bound, unbound = self._listeners.bound, self._listeners.unbound
                problems += login_problems(self.values, bound, unbound)
                problems += tls_problems(self.values, bound, unbound)
                if self.metadata_store != "embedded":
                    name = self._listeners.inter_broker_name
                    between = next(row for row in bound if row.name == name)
                    problems += inter_broker_problems(self.values, between)
        if problems:
            raise ConfigError(problems)
        names = {listener.name.lower() for listener in self.listeners}
        # The given settings that have no effect, each with the reason.
        self.ineffective = ineffective(self.values, self.metadata_store == "embedded", names)
        self._warn()
        self._notice()

    def _identity_problems(self) -> list[str]:
        wrong = []
        node_id, broker_id = self["node.id"], self["broker.id"]
        if node_id != broker_id:
            wrong.append(
                f"node.id={node_id} and broker.id={broker_id} differ, and both name this node."
                " Remove one."
            )
        wrong += self._quorum_problems()
        if not self.log_dirs or "" in self.log_dirs:
            wrong.append("log.dirs: a directory name is empty. Name at least one directory.")
        elif len(set(self.log_dirs)) < len(self.log_dirs):
            wrong.append("log.dirs: a directory is there twice. Name each once.")
        if not ZOOKEEPER_NAMES.isdisjoint(self.values):
            from barnabas.config.zookeeper import zookeeper_problems

            wrong += zookeeper_problems(self.metadata_store, self.get)
        roles = self.names("process.roles")
        if roles and "broker" not in roles:
            wrong.append(
                "process.roles=controller: such a node would serve no clients."
                " Use process.roles=broker,controller, or remove the setting."
            )
        return wrong

    def _quorum_problems(self) -> list[str]:
        """Returns an error when the settings name several KRaft nodes: each node would form a
        cluster of its own."""
        if self.metadata_store != "embedded" or self["allow.cluster.of.one"]:
            return []
        return [
            f"{name}={self.values[name]}{self._where(name)} names {len(self.names(name))} nodes,"
            " and this broker joins no KRaft quorum: each node would form a cluster of its own."
            " Name this node alone, or use metadata.store=zookeeper for several brokers, or set"
            " allow.cluster.of.one=true."
            for name in QUORUM
            if self.is_set(name) and len(self.names(name)) > 1
        ]

    def _warn(self) -> None:
        for name, why in self.ineffective.items():
            if not _is_known(name) and not name.startswith(SILENT_PREFIXES):
                self.warnings.append(f"{name}{self._where(name)}: {why}")
            elif why == NO_LISTENER:
                self.warnings.append(f"{name}: {why}")
        for listener in self.listeners:
            if is_loopback(listener.host):
                continue
            if listener.protocol == "SASL_PLAINTEXT":
                self.warnings.append(
                    f"{listener}: clients log in, and records and the passwords of PLAIN cross the"
                    " network in clear text."
                )
            elif self.is_open(listener):
                self.warnings.append(
                    f"{listener}: every client that can reach this address can read, write and"
                    " delete all data (allow.unauthenticated.remote=true)."
                )

    def is_open(self, listener: Listener) -> bool:
        """Returns whether the listener serves clients without authentication."""
        return listener.protocol == "PLAINTEXT" or (TlsSettings(self.values, listener).is_anonymous)

    def _notice_without_effect(self) -> None:
        """Adds one notice for each reason; leaves out the settings that other lines explain."""
        names: dict[str, list[str]] = {}
        for name, why in self.ineffective.items():
            setting = BROKER_SETTINGS.get(name)
            if setting and not setting.is_effective and name not in EXPLAINED_APART:
                names.setdefault(why, []).append(name)
        for why, found in names.items():
            verb = "has" if len(found) == 1 else "have"
            self.notices.append(f"{', '.join(found)} {verb} no effect: {why}.")

    def _notice_default_directory(self) -> None:
        place = self.log_dirs[0]
        self.notices.append(f"log.dirs is not set: data goes to {place}")
        if os.path.exists(f"{FORMER}/meta.properties"):
            self.warnings.append(
                f"{FORMER} holds data of a broker: it was the default of log.dirs up to 0.1.0, and"
                f" is that of Apache Kafka. This broker uses {place} and not that data. To use it,"
                f" stop the broker and move it to a place that survives a reboot, or give --set"
                f" log.dirs={FORMER}."
            )

    def _notice(self) -> None:
        embedded = self.metadata_store == "embedded"
        if embedded and self["zookeeper.connect"]:
            self.notices.append(f"zookeeper.connect is not used: {NO_ZOOKEEPER}")
        if not self.is_set("log.dirs") and not self.is_set("log.dir"):
            self._notice_default_directory()
        kraft = [n for n in ("process.roles", *QUORUM) if self.is_set(n)]
        if kraft:
            self.notices.append(
                f"{', '.join(kraft)}: there is no KRaft quorum; this node keeps its metadata in"
                f" its own {'embedded store' if embedded else 'ZooKeeper'}."
            )
        for listener in self._listeners.unbound:
            self.notices.append(f"{listener}: a controller listener, not bound.")
        if not is_built_in():
            self.notices.append(f"{MISSING}.")
        self._notice_without_effect()
        self._notice_memory()

    def _notice_memory(self) -> None:
        lowered = [f"{name}={self[name]}" for name in LOWERED if not self.is_set(name)]
        if lowered:
            self.notices.append(
                f"this process may use {MEMORY_LIMIT_BYTES:,} bytes of memory (its control group):"
                f" {', '.join(lowered)} by default."
            )


def _is_known(name: str) -> bool:
    return (
        name in BROKER_SETTINGS
        or listener_limit(name) is not None
        or login_setting(name) is not None
        or tls_setting(name) is not None
    )


def _check_typed(name: str) -> None:
    """Raises UnknownSetting for a name that no setting, listener or plugin can have."""
    if not _is_known(base_name(name)) and not name.startswith(SILENT_PREFIXES):
        meant = nearest(name, BROKER_SETTINGS)
        raise UnknownSetting(
            f"--set {name}: this setting is not known."
            + (meant or " docs/settings.md lists all; those of plugins begin with `plugin.`.")
        )


def ineffective(
    values: Mapping[str, str], is_embedded: bool, listeners: Collection[str] | None = None
) -> dict[str, str]:
    """Returns the given settings that have no effect on a broker, by name, each with the reason.

    `values`: texts by name; `is_embedded`: the broker keeps its metadata itself; `listeners`: the
    names of the bound listeners in lower case, None if they are not known."""
    reasons: dict[str, str] = {}
    unknown_count = 0
    for name in sorted(values):
        own = tls_setting(name) or login_setting(name)
        setting = BROKER_SETTINGS.get(own.base if own else name)
        limit = listener_limit(name)
        newer = OLD_ADDRESSES.get(name)
        if limit is not None:
            if listeners is not None and limit.listener not in listeners:
                reasons[name] = NO_LISTENER
        elif name.startswith("config.providers."):
            reasons[name] = BROKER_SETTINGS["config.providers"].why_without_effect
        elif setting is None:
            if _is_known(name) or name.startswith(SILENT_PREFIXES):
                continue
            meant = nearest(name, BROKER_SETTINGS) if unknown_count < SUGGESTIONS_MAX else ""
            unknown_count += 1
            reasons[name] = (
                f"this setting is not known.{meant} It is kept for plugins and has no other effect;"
                " check the spelling."
            )
        elif not setting.is_effective:
            reasons[name] = setting.why_without_effect
        elif newer in values and not (name == "port" and "advertised.host.name" in values):
            reasons[name] = f"{newer} is set and overrides it"
        elif is_embedded and name.startswith("zookeeper."):
            reasons[name] = NO_ZOOKEEPER
    return reasons


class Given:
    """What the sources of a start give, before it is checked.

    `values` and `origins` by name; `lines`: those of the file, in order, with the values before
    references are replaced; `doubles`: warnings about keys that the file sets twice; `problems`:
    values that cannot be found, and files that others may read."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        overrides: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """The arguments are those of BrokerConfig.load. Raises ConfigError when the file cannot be
        read at all, or an override is not a setting."""
        environ = os.environ if environ is None else environ
        self.values: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.lines: list[Property] = []
        self.doubles: list[str] = []
        self.problems: list[str] = []
        if path:
            self._read_file(os.fspath(path), Providers(environ))
        for name, (value, variable) in settings_from(environ).items():
            self._override(name, value, f"environment {variable}")
        for text in overrides:
            name, equals, value = text.partition("=")
            if not equals or not name.strip():
                raise ConfigError(f"--set {text}: not a setting. Write --set name=value.")
            _check_typed(name.strip())
            self._override(name.strip(), value.strip(), "--set")

    def _override(self, name: str, value: str, origin: str) -> None:
        if refers(value):
            raise ConfigError(
                f"{name} ({origin}): ${{...}} works in the settings file only."
                " Give the value itself, or move the setting into the file."
            )
        self.values[name], self.origins[name] = value, origin

    def _read_file(self, path: str, providers: Providers) -> None:
        """Adds the settings of a file."""
        self.lines = parse_properties(read_limited(path), path)
        numbers: dict[str, int] = {}
        secret_files: dict[str, str] = {}
        for entry in self.lines:
            text = entry.value
            from_files: set[str] = set()
            if refers(text):
                try:
                    text, from_files = providers.resolve(entry.key, text)
                except ConfigError as error:
                    self.problems += error.problems
                    text = ""
            setting = BROKER_SETTINGS.get(base_name(entry.key))
            if setting and setting.is_sensitive and text:
                for secret_file in from_files or ({path} if text == entry.value else ()):
                    secret_files[secret_file] = entry.key
            if entry.key in numbers:
                self.doubles.append(
                    f"{entry.key}: set on line {numbers[entry.key]} and again on line {entry.line}"
                    f" of {path}; the last one counts."
                )
            numbers[entry.key] = entry.line
            self.values[entry.key], self.origins[entry.key] = text, origin_of(path, entry)
        for secret_file, key in secret_files.items():
            try:
                check_private(secret_file, key)
            except ConfigError as error:
                self.problems += error.problems


def origin_of(path: str, entry: Property) -> str:
    """Returns the place of a setting in a file, as messages name it."""
    return f"{path} line {entry.line}"
