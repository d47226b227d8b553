"""The dynamic settings of brokers, which change while the broker runs and override the static ones.

The state is two maps of texts: one for every broker, and one for each broker id. The metadata tree
stores them: the code that reads the tree passes them to `replace`, and stores the map that `alter`
returns (controller/stored_passwords.py encrypts its secrets). The functions in `on_change` take the
names whose value in force has changed; they run after the change, on the thread that made it. The
exception of one stops neither the change nor the other functions; `on_error` receives it (without
`on_error`, the first exception is raised at the end). The functions in `checks` take the layers
after the change and the requested names, before anything changes, and return the problems. One
thread at a time calls `alter` and `replace`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from barnabas.config.broker_config import BrokerConfig, cross_problems
from barnabas.config.connection_limits import PREFIX, listener_limit
from barnabas.config.layers import (
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT_BROKER,
    STATIC_BROKER,
    ConfigEntry,
    Layers,
    TypedAccess,
    candidates,
    describe_setting,
    describe_unknown,
    is_listed,
    value_in_force,
)
from barnabas.config.listeners import Listeners
from barnabas.config.logins import (
    is_fulfilled,
    login_dynamic_problem,
    login_problems,
    login_setting,
)
from barnabas.config.protection import base_name, protection_asked
from barnabas.config.providers import refers
from barnabas.config.settings import BROKER_SETTINGS, PER_BROKER, ConfigError
from barnabas.config.tls import tls_dynamic_problem, tls_problems, tls_setting
from barnabas.config.values import Value, parse_value

UNKNOWN_COUNT_MAX = 1000  # names that are not in the table, for each broker
ENCODER_SECRET = "password.encoder.secret"
LISTENER_NAMES = frozenset({"listeners", "listener.security.protocol.map"})
TEXT_BYTES_MAX = 32768  # size of one value that a client sends

Changed = Callable[[frozenset[str]], None]
Check = Callable[[Layers, frozenset[str]], list[str]]
TopicCheck = Callable[[Mapping[str, str]], list[str]]


class DynamicConfig(TypedAccess):
    """The values in force on this node; `alter` and `replace` change them."""

    def __init__(
        self,
        static: BrokerConfig,
        node_id: int | None = None,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self.static = static
        self.node_id = static.node_id if node_id is None else node_id
        self.on_change: list[Changed] = []
        self.checks: list[Check] = []
        self.topic_checks: list[TopicCheck] = []  # more checks of the settings of topics
        self.on_error = on_error
        self._cluster: dict[str, str] = {}
        self._brokers: dict[int, dict[str, str]] = {}
        self.layers = Layers(static.values)

    def __getitem__(self, name: str) -> Value:
        """Returns the typed value in force on this node, with converted units. Raises KeyError for
        an unknown name that was not set."""
        layers = self.layers  # read once: another thread may replace it
        if name not in layers.typed:
            setting = BROKER_SETTINGS.get(name)
            if setting is None:
                for layer in (layers.broker, layers.cluster):
                    if name in layer:
                        return layer[name]
                return self.static[name]
            layers.typed[name] = value_in_force(setting, layers)
        return layers.typed[name]

    @property
    def listeners(self) -> Listeners:
        return listeners_of(self.layers)

    def texts_in_force(self) -> dict[str, str]:
        """Returns the text in force of each name that was set, on this node."""
        return self.layers.texts()

    def texts(self, broker_id: int | None) -> dict[str, str]:
        """Returns the dynamic texts of one broker, or of every broker (None)."""
        return dict(self._cluster if broker_id is None else self._brokers.get(broker_id, {}))

    def layers_of(self, broker_id: int | None) -> Layers:
        """Returns the layers of a broker, or those of every broker (None). This node knows only the
        dynamic settings of another broker."""
        static = self.static.values if broker_id in (None, self.node_id) else {}
        broker = {} if broker_id is None else self._brokers.get(broker_id, {})
        return Layers(static, self._cluster, broker)

    def alter(
        self,
        broker_id: int | None,
        changes: Mapping[str, str | None],
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Sets (a text) or deletes (None) values of one broker, or of every broker if `broker_id`
        is None. It makes all changes or none. `validate_only` only checks.

        Returns the complete new map of that broker, for the caller to store. Raises ConfigError.
        """
        texts = self.texts(broker_id)
        problems: list[str] = []
        for name, text in changes.items():
            problems += dynamic_problems(name, text, cluster_wide=broker_id is None)
            problems += self._secret_problems(broker_id, name, text)
            texts.pop(name, None)
            if text is not None:
                texts[name] = text
        if sum(name not in BROKER_SETTINGS for name in texts) > UNKNOWN_COUNT_MAX:
            problems.append(f"more than {UNKNOWN_COUNT_MAX} settings that are not known.")
        if not problems:
            after = self.layers_of(broker_id)
            if broker_id is None:
                after.cluster = texts
                after.broker = self._brokers.get(self.node_id, {})
            else:
                after.broker = texts
            problems = cross_problems(lambda name: value_in_force(BROKER_SETTINGS[name], after))
            if broker_id == self.node_id and LISTENER_NAMES & changes.keys():
                problems += _listener_problems(after)
            if broker_id == self.node_id and not problems:
                problems += _tls_problems(after, changes) + _login_problems(after, changes)
            if broker_id in (None, self.node_id) and not problems:
                for check in self.checks:
                    problems += check(after, frozenset(changes))
        if problems:
            raise ConfigError(problems)
        if not validate_only:
            self.replace(broker_id, texts)
        return texts

    def _secret_problems(self, broker_id: int | None, name: str, text: str | None) -> list[str]:
        """Returns why a secret cannot be stored; nothing for other settings."""
        base = BROKER_SETTINGS.get(base_name(name))
        if text is None or broker_id is None or base is None or not base.is_sensitive:
            return []
        if not self.static.get(ENCODER_SECRET):
            or_a_file = ", or use a PEM file, which is read again when it changes"
            return [
                f"{name}: a secret, which is stored encrypted or not at all. Set {ENCODER_SECRET}"
                f" in the file and restart{or_a_file if tls_setting(name) else ''}."
            ]
        if broker_id != self.node_id:
            return [
                f"{name}: a secret, which only its own broker can encrypt. Send the change to"
                f" broker {broker_id}."
            ]
        return []

    def replace(self, broker_id: int | None, texts: Mapping[str, str]) -> list[str]:
        """Replaces the map of one broker, or of every broker (None), with a stored one: at the
        start, and when another node has changed it.

        It leaves out a stored value that this build does not accept; returns one line for each.
        """
        kept, problems = {}, []
        for name, text in texts.items():
            wrong = dynamic_problems(name, text, cluster_wide=broker_id is None)
            problems += wrong
            if not wrong:
                kept[name] = text
        before = self.layers
        if broker_id is None:
            self._cluster = kept
        elif kept:
            self._brokers[broker_id] = kept
        else:
            self._brokers.pop(broker_id, None)
        self.layers = self.layers_of(self.node_id)
        changed = _changed_names(before, self.layers)
        if changed:
            self._call_listeners(changed)
        return problems

    def _call_listeners(self, changed: frozenset[str]) -> None:
        errors = []
        for listener in list(self.on_change):
            try:
                listener(changed)
            except Exception as error:  # an error in one package must not stop the others
                errors.append(error)
        for failed in errors:
            if self.on_error is None:
                raise failed
            self.on_error(failed)

    def describe(
        self, names: Iterable[str] | None = None, broker_id: int | None = None
    ) -> list[ConfigEntry]:
        """Returns the rows of DescribeConfigs for this broker (its id) or for the cluster's
        defaults (None). `names` selects settings.

        As in Kafka, the cluster's defaults have only the settings that a client has altered.
        """
        wanted = None if names is None else set(names)
        layers = self.layers_of(broker_id)
        altered = {**layers.cluster, **layers.broker}
        found = []
        for name, setting in BROKER_SETTINGS.items():
            shown = name in altered if broker_id is None else True
            if shown and (wanted is None or name in wanted):
                entry = describe_setting(setting, layers)
                if wanted is not None or is_listed(setting, entry):
                    found.append(entry)
        unknown = dict(altered) if broker_id is None else {**layers.static, **altered}
        for name in sorted(n for n in unknown if n not in BROKER_SETTINGS):
            if wanted is None or name in wanted:
                found.append(describe_unknown(name, _source_of(name, layers)))
        return found


def listeners_of(layers: Layers) -> Listeners:
    """Returns the listeners of these layers; the same rules apply as to the file. Raises
    ConfigError."""
    given = layers.texts()
    return Listeners(lambda name: value_in_force(BROKER_SETTINGS[name], layers), given.__contains__)


def _listener_problems(layers: Layers) -> list[str]:
    try:
        listeners_of(layers)
    except ConfigError as error:
        return error.problems
    return []


def _tls_problems(layers: Layers, names: Iterable[str]) -> list[str]:
    if not any(tls_setting(name) or name in LISTENER_NAMES for name in names):
        return []
    listeners = listeners_of(layers)
    values = layers.texts()
    return tls_problems(values, listeners.bound, listeners.unbound)


def _login_problems(layers: Layers, names: Iterable[str]) -> list[str]:
    altered = [name for name in names if login_setting(name)]
    if not altered:
        return []
    listeners = listeners_of(layers)
    return login_problems(layers.texts(), listeners.bound, listeners.unbound, altered)


def _source_of(name: str, layers: Layers) -> int:
    if name in layers.broker:
        return DYNAMIC_BROKER
    return DYNAMIC_DEFAULT_BROKER if name in layers.cluster else STATIC_BROKER


def dynamic_problems(name: str, text: str | None, cluster_wide: bool) -> list[str]:
    """Returns the reasons why a dynamic setting cannot get the value `text`; None deletes it."""
    setting = BROKER_SETTINGS.get(name)
    if setting and setting.is_read_only:
        return [f"{name}: cannot change while the broker runs. Set it in the file and restart."]
    base = BROKER_SETTINGS.get(base_name(name))
    of_one = base and (base.mode == PER_BROKER or base.is_sensitive)
    if cluster_wide and (of_one or name.startswith(PREFIX)):
        return [f"{name}: differs from broker to broker. Alter it for one broker id."]
    if text is None:
        return []
    if len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
        return [f"{name}: the value is longer than {TEXT_BYTES_MAX} bytes. Shorten it."]
    if refers(text):
        return [f"{name}: ${{...}} works in the server's own file only. Give the value itself."]
    wrong = tls_dynamic_problem(name) or login_dynamic_problem(name)
    if wrong:
        return [wrong]
    is_known = tls_setting(name) or is_fulfilled(name, text)
    protection = None if is_known else protection_asked(name, text)
    if protection:
        return [f"{name}: asks for {protection}, not available in this build. Leave it out."]
    if limit := listener_limit(name):
        setting = limit.setting
    elif of_listener := tls_setting(name) or login_setting(name):
        setting = BROKER_SETTINGS[of_listener.base]
    if setting:
        try:
            parse_value(setting, text)
        except ConfigError as error:
            return error.problems
    return []


def _changed_names(before: Layers, after: Layers) -> frozenset[str]:
    touched = set()
    for old, new in ((before.broker, after.broker), (before.cluster, after.cluster)):
        touched |= {n for n in {*old, *new} if old.get(n) != new.get(n)}
    changed = set()
    for name in touched:
        setting = BROKER_SETTINGS.get(name)
        if setting is None:
            changed.add(name)
            continue
        old_best, new_best = candidates(setting, before)[:1], candidates(setting, after)[:1]
        if [c.value() for c in old_best] != [c.value() for c in new_best]:
            changed.add(name)
    return frozenset(changed)
