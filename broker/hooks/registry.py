"""The plugins of one broker: their order, and how the broker combines their answers.

The setting `plugins` names the plugins that the broker calls for every decision, in its order; a
topic names those that see its records and its segments. A topic may name a built-in plugin that
`plugins` does not list: the registry creates a built-in at its first use. A reload replaces the
whole set; a call that is running at that time finishes with its old plugin."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.hooks.builtin import ASSIGNORS, BUILTIN
from barnabas.hooks.calls import FAILED, BadAnswer, Calls
from barnabas.hooks.loading import (
    find,
    forget_modules,
    implementations,
    load,
)
from barnabas.hooks.options import COMMON, options_of, parse
from barnabas.hooks.plugin import CannotLoad, Plugin
from barnabas.hooks.views import (
    ConfigChange,
    ConnectionView,
    DirectoryView,
    DirtyLog,
    GroupView,
    LogView,
    NewTopicView,
    RecordBatch,
    Reject,
    Replace,
    UnflushedLog,
)

log = logging.getLogger("barnabas.hooks")

MESSAGE_CHARACTERS_MAX = 1000
PRINCIPAL_BYTES_MAX = 4096


TOO_LATE: Any = object()  # in place of an interceptor's answer


class Later(NamedTuple):
    """An interceptor did not decide on a batch in time; the producer may send the batch again."""

    message: str


class FetchRefused(Exception):
    """A plugin with on.failure=closed failed in intercept_fetch."""


class Registry:
    """The plugins that run. `settings` returns all effective `plugin.NAME.key`, by name."""

    def __init__(self, settings: Callable[[], Mapping[str, str]] = dict) -> None:
        self.calls = Calls()
        self._settings = settings
        self._lock = threading.RLock()  # guards making and replacing plugins
        self._named: tuple[Plugin, ...] = ()  # the plugins of `plugins`, in order
        self._plugins: dict[str, Plugin] = {}  # replaced, never changed
        self._closed = False
        self._begin: Callable[[Plugin], object] = lambda plugin: None

    # -- the plugins in use ---------------------------------------------------------------------

    def on_made(self, begin: Callable[[Plugin], object]) -> None:
        """Sets the function that is called with each new plugin before the broker uses it."""
        self._begin = begin

    def load(self, names: Sequence[str]) -> None:
        """Creates the plugins of the setting `plugins`, and uses them. Changes nothing when it
        raises CannotLoad."""
        made = self.made(names)
        with self._lock:
            self._use(made)

    def load_what_can(self, names: Sequence[str]) -> list[str]:
        """Does what `load` does, but without the plugins that it cannot load; returns the problems
        of those."""
        problems = []
        made: list[Plugin] = []
        for name in dict.fromkeys(names):
            try:
                made += self.made([name])
            except CannotLoad as error:
                problems += error.problems
        with self._lock:
            self._use(made)
        return problems

    def made(self, names: Sequence[str]) -> list[Plugin]:
        """Creates the plugins with these names without using them; the caller closes them, or uses
        them by `load`. Raises CannotLoad with the problems of all names; then it has closed what it
        created."""
        settings = self._settings()
        problems: list[str] = []
        made: list[Plugin] = []
        for name in names:
            if names.count(name) > 1:
                problems.append(f"plugins lists {name} more than once. Name it once.")
                break
            try:
                made.append(load(name, options_of(name, settings)))
            except CannotLoad as error:
                problems += error.problems
        if problems:
            for plugin in made:
                self.calls.close(plugin)
            raise CannotLoad(problems)
        return made

    def check(
        self,
        names: Sequence[str],
        wrong: Callable[[Iterable[Plugin]], list[str]] = lambda _plugins: [],
    ) -> list[str]:
        """Returns the problems of a new set of plugins; `wrong` returns those of plugins that can
        be loaded."""
        try:
            made = self.made(names)
        except CannotLoad as error:
            return error.problems
        problems = wrong(made)
        for plugin in made:
            self.calls.close(plugin)
        return problems

    def forget_code(self, names: Iterable[str]) -> list[str]:
        """Makes the next `load` import the plugins' modules again. Returns the problems of plugins
        that are no longer installed."""
        settings = self._settings()
        problems: list[str] = []
        for name in names:
            use = options_of(name, settings).get("use", name)
            try:
                if use not in BUILTIN:
                    forget_modules(find(use).target)
            except CannotLoad as error:
                problems += error.problems
        return problems

    def reload(self, names: Sequence[str]) -> None:
        """Does what `load` does, and calls `broker_stopping` of the plugins that it replaces.
        Raises CannotLoad."""
        with self._lock:
            made = self.made(names)
            before = list(self._plugins.values())
            for plugin in before:
                self.tell(plugin, "broker_stopping", {})
            self._use(made)
        for plugin in before:
            self.calls.close(plugin)

    def _use(self, made: list[Plugin]) -> None:
        self._plugins = {plugin.name: plugin for plugin in made}
        self._named = tuple(made)
        for plugin in made:
            log.info("%s", plugin.said())
            self._begin(plugin)

    def register(self, made: Any, name: str) -> Plugin:
        """Adds an object as a plugin. Raises ValueError when the name is in use or an
        implementation fits no hook."""
        with self._lock:
            if name in self._plugins:
                raise ValueError(f"a plugin with the name {name} already runs")
            try:
                hooks = implementations(name, made)
            except CannotLoad as error:
                raise ValueError(str(error)) from error
            plugin = Plugin(name, hooks, made=made, common=parse(name, COMMON, {}))
            self._plugins = self._plugins | {name: plugin}
            self._named += (plugin,)
            self._begin(plugin)
            return plugin

    def plugins(self) -> list[Plugin]:
        return list(self._plugins.values())

    def names(self) -> list[str]:
        return sorted(self._plugins)

    @property
    def failures(self) -> Counter[str]:
        """Returns the number of failed calls, by plugin."""
        return Counter({row.name: sum(row.failures.values()) for row in self.plugins()})

    def plugin(self, name: str) -> Plugin | None:
        """Returns a plugin that a topic names, and creates a built-in at its first use. Returns
        None when no such plugin runs, and logs that once a minute."""
        found = self._plugins.get(name)
        if found is not None:
            return found
        settings = self._settings()
        if self._closed or (options_of(name, settings).get("use") or name) not in BUILTIN:
            return None
        with self._lock:
            if name not in self._plugins:
                try:
                    made = load(name, options_of(name, settings))
                except CannotLoad as error:
                    log.error("%s", error)
                    return None
                self._plugins = self._plugins | {name: made}
                self._begin(made)
            return self._plugins[name]

    def problem_of(self, name: str, hook: str) -> str:
        """Returns why a topic cannot name the plugin for this hook (it does not run, or does not
        implement the hook); "" when it can."""
        found = self._plugins.get(name)
        if found is None:
            settings = self._settings()
            if (options_of(name, settings).get("use") or name) not in BUILTIN:
                return f"the plugin {name!r} does not run; name it in `plugins`"
            try:
                found = load(name, options_of(name, settings))
            except CannotLoad as error:
                return str(error)
            self.calls.close(found)
        return "" if hook in found.hooks else f"the plugin {name} does not implement {hook}"

    def close(self) -> None:
        with self._lock:
            self._closed = True
            gone, self._plugins, self._named = self.plugins(), {}, ()
        for plugin in gone:
            self.tell(plugin, "broker_stopping", {})
            self.calls.close(plugin)
        self.calls.close_all()

    # -- calls ----------------------------------------------------------------------------------

    def tell(self, plugin: Plugin, hook: str, arguments: Mapping[str, Any]) -> None:
        """Calls a hook without a return value of one plugin, if the plugin implements it. A failure
        is logged and counted."""
        if hook in plugin.hooks:
            self.calls.call(plugin, hook, arguments)

    def tell_all(self, hook: str, arguments: Mapping[str, Any]) -> None:
        """Calls a hook without a return value of all plugins that implement it."""
        for plugin in self.plugins():
            self.tell(plugin, hook, arguments)

    def own_metrics(self, plugin: Plugin) -> Mapping[str, Mapping[str, float]]:
        """Returns the plugin's own metrics: name -> topic -> value; an empty mapping when the
        plugin does not implement the hook or fails."""

        def checked(answer: Any) -> Mapping[str, Mapping[str, float]]:
            try:
                return {
                    str(name): {str(topic): float(value) for topic, value in values.items()}
                    for name, values in answer.items()
                }
            except (AttributeError, TypeError, ValueError):
                raise BadAnswer(f"it answered {str(answer)[:200]}") from None

        if "own_metrics" not in plugin.hooks:
            return {}
        found = self.calls.call(plugin, "own_metrics", {}, checked)
        return {} if found is FAILED else dict(found)

    def implements(self, hook: str) -> bool:
        """Returns whether a plugin of the setting `plugins` implements the hook."""
        return any(hook in plugin.hooks for plugin in self._named)

    def _answers(
        self, hook: str, arguments: Mapping[str, Any], check: Callable[[Any], Any]
    ) -> Iterator[tuple[Plugin, Any]]:
        for plugin in self._named:
            if hook in plugin.hooks:
                yield plugin, self.calls.call(plugin, hook, arguments, check)

    def deletable_segments(
        self, view: LogView, now_ms: int, policies: Sequence[str] | None = None
    ) -> int:
        """Returns the largest answer of a topic's policies (None: all plugins), a number of
        segments. A failure counts as 0."""

        def checked(answer: Any) -> int:
            if type(answer) is not int or not 0 <= answer <= len(view.segments):
                raise BadAnswer(f"it answered {answer!r} for {len(view.segments)} segments")
            return answer

        hook = "deletable_segments"
        largest = 0
        for plugin in self._of_topic(policies, hook):
            if plugin is not None:
                arguments = {"log": view, "now_ms": now_ms}
                answer = self.calls.call(plugin, hook, arguments, checked)
                largest = max(largest, 0 if answer is FAILED else answer)
        return largest

    def _of_topic(self, names: Sequence[str] | None, hook: str) -> Iterator[Plugin | None]:
        """Returns the plugins that a topic names; None for one that does not run or lacks the
        hook."""
        if names is None:
            yield from (row for row in self.plugins() if hook in row.hooks)
            return
        for name in names:
            found = self.plugin(name)
            yield found if found is not None and hook in found.hooks else None

    def intercept_produce(
        self, names: Sequence[str], batch: RecordBatch
    ) -> Reject | Later | bytes | None:
        """Decides on a producer's batch. Returns Reject to reject it, Later to ask the producer to
        send it again, other bytes to append in its place, or None to append it unchanged."""
        hook = "intercept_produce"
        made: bytes | None = None
        for name, plugin in zip(names, self._of_topic(names, hook), strict=True):
            if plugin is None:
                return Reject(f"the interceptor {name} does not run on this broker")
            answer = self.calls.call(
                plugin, hook, {"batch": batch}, _intercepted(batch, True), too_late=TOO_LATE
            )
            if answer is TOO_LATE and plugin.is_closed:
                return Later(f"the interceptor {name} took longer than its budget")
            if answer is FAILED and plugin.is_closed:
                return Reject(f"the interceptor {name} failed for the batch")
            if isinstance(answer, Reject):
                return answer
            if isinstance(answer, bytes):
                made = answer
                batch = RecordBatch(batch.topic, batch.partition, made, batch.size_max)
        return made

    def intercept_fetch(self, names: Sequence[str], batch: RecordBatch) -> bytes | None:
        """Returns the bytes that a consumer gets in place of a batch, None for the batch unchanged.
        Raises FetchRefused."""
        hook = "intercept_fetch"
        made: bytes | None = None
        for name, plugin in zip(names, self._of_topic(names, hook), strict=True):
            if plugin is None:
                raise FetchRefused(f"the interceptor {name} does not run on this broker")
            answer = self.calls.call(plugin, hook, {"batch": batch}, _intercepted(batch, False))
            if answer is FAILED and plugin.is_closed:
                raise FetchRefused(f"the interceptor {name} failed for a batch")
            if isinstance(answer, bytes):
                made = answer
                batch = RecordBatch(batch.topic, batch.partition, made, batch.size_max)
        return made

    def should_roll(self, view: LogView, now_ms: int) -> bool:
        """Returns whether a plugin wants to roll the active segment. A failure counts as no.
        `now_ms`: the broker's wall clock."""
        arguments = {"log": view, "now_ms": now_ms}
        return any(found is True for _, found in self._answers("should_roll", arguments, _bool))

    def should_flush(self, view: UnflushedLog) -> bool:
        """Returns whether a plugin wants to flush the log now. A failure counts as no."""
        return any(
            found is True for _, found in self._answers("should_flush", {"log": view}, _bool)
        )

    def may_compact(self, view: DirtyLog) -> bool:
        """Returns whether the log may be compacted: no plugin answered False, and no plugin with
        `on.failure=closed` failed."""
        return not any(
            found is False or (found is FAILED and plugin.is_closed)
            for plugin, found in self._answers("may_compact", {"log": view}, _bool)
        )

    def place_partitions(
        self, brokers: Sequence[int], partition_count: int, replication_factor: int, first: int
    ) -> list[tuple[int, ...]] | None:
        """Returns the replicas of each new partition from the first plugin that places them; None:
        the broker places them. `first`: the index of the first new partition. A wrong answer
        (number of partitions or replicas, unknown or repeated brokers) counts as a failure, after
        which the next plugin is asked."""

        def checked(answer: Any) -> list[tuple[int, ...]] | None:
            if answer is None:
                return None
            placed = [tuple(row) for row in answer]
            right = len(placed) == partition_count and all(
                len(row) == len(set(row)) == replication_factor and set(row) <= set(brokers)
                for row in placed
            )
            if not right:
                raise BadAnswer(f"it answered {str(answer)[:200]}")
            return placed

        arguments = {
            "brokers": tuple(brokers),
            "partition_count": partition_count,
            "replication_factor": replication_factor,
            "first": first,
        }
        found = self._first("place_partitions", arguments, checked)
        return None if found is None else list(found)

    def choose_log_directory(
        self, topic: str, partition: int, directories: Sequence[DirectoryView]
    ) -> str | None:
        """Returns the path of the directory that the first plugin with an answer chose; None: the
        broker chooses. An answer that is not one of `directories` counts as a failure."""
        paths = {row.path for row in directories}

        def checked(answer: Any) -> str | None:
            if answer is not None and answer not in paths:
                raise BadAnswer(f"it answered {str(answer)[:200]!r}")
            return None if answer is None else str(answer)

        arguments = {
            "topic": topic,
            "partition": partition,
            "directories": tuple(directories),
        }
        found = self._first("choose_log_directory", arguments, checked)
        return None if found is None else str(found)

    def client_quota(self, quota: str, user: str, client_id: str) -> float | None:
        """Returns the first answer that is a number above 0, in the unit of the quota; None when no
        plugin returns one. `quota`: producer_byte_rate, consumer_byte_rate or
        request_percentage."""

        def checked(answer: Any) -> float | None:
            if answer is None:
                return None
            if isinstance(answer, bool) or not isinstance(answer, int | float) or not answer > 0:
                raise BadAnswer(f"it answered {str(answer)[:200]!r}, which is not a number above 0")
            return float(answer)

        arguments = {"quota": quota, "user": user, "client_id": client_id}
        return self._first("client_quota", arguments, checked)

    def authorize(self, name: str, arguments: Mapping[str, Any]) -> bool | None:
        """Returns the decision of the plugin `name` about access; False when it fails or does not
        run."""

        def checked(answer: Any) -> bool | None:
            return None if answer is None else _bool(answer)

        answer = self._answer_of(name, "authorize", arguments, checked)
        return False if answer is FAILED else answer

    def build_principal(self, name: str, connection: ConnectionView) -> str | Reject | None:
        """Returns the answer of the plugin `name`: TYPE:NAME, a Reject, or None for Kafka's
        principal; Reject when the plugin fails or does not run (KafkaPrincipalBuilder)."""
        arguments = {"connection": connection}
        answer = self._answer_of(name, "build_principal", arguments, _principal)
        if answer is FAILED:
            return Reject(f"the plugin {name} has made no principal")
        return answer

    def _answer_of(
        self, name: str, hook: str, arguments: Mapping[str, Any], check: Callable[[Any], Any]
    ) -> Any:
        plugin = self.plugin(name)
        if plugin is None or hook not in plugin.hooks:
            return FAILED
        return self.calls.call(plugin, hook, arguments, check)

    def assign_partitions(
        self, assignor: str, group: GroupView
    ) -> Mapping[str, Mapping[bytes, Collection[int]]]:
        """Returns the first answer that is not None. Raises ValueError when a plugin fails or no
        plugin knows the assignor."""
        hook = "assign_partitions"

        def checked(answer: Any) -> Any:
            if answer is not None and not isinstance(answer, Mapping):
                raise BadAnswer(f"it answered {str(answer)[:200]!r}")
            return answer

        asked = [plugin for plugin in reversed(self._named) if hook in plugin.hooks]
        builtin = (self.plugin(name) for name in ASSIGNORS)
        for plugin in (*asked, *(row for row in builtin if row is not None and row not in asked)):
            arguments = {"assignor": assignor, "group": group}
            answer = self.calls.call(plugin, hook, arguments, checked)
            if answer is FAILED:
                raise ValueError(f"the plugin {plugin.name} failed")
            if answer is not None:
                found: Mapping[str, Mapping[bytes, Collection[int]]] = answer
                return found
        raise ValueError(f"no plugin implements the assignor {assignor}")

    def _first(
        self, hook: str, arguments: Mapping[str, Any], check: Callable[[Any], Any]
    ) -> Any | None:
        for _, answer in self._answers(hook, arguments, check):
            if answer is not None and answer is not FAILED:
                return answer
        return None

    def refusal_of_topic(self, topic: NewTopicView) -> str | None:
        """Returns why a plugin refuses a new topic; None when none does. A plugin with
        `on.failure=closed` refuses it by failing. Kafka: CreateTopicPolicy."""
        return self._refusal("check_new_topic", {"topic": topic})

    def refusal_of_change(self, change: ConfigChange) -> str | None:
        """Returns why a plugin refuses a change of a configuration; None when none does. A plugin
        with `on.failure=closed` refuses it by failing. Kafka: AlterConfigPolicy."""
        return self._refusal("check_config_change", {"change": change})

    def _refusal(self, hook: str, arguments: Mapping[str, Any]) -> str | None:
        for plugin, answer in self._answers(hook, arguments, _reason):
            if answer is FAILED and plugin.is_closed:
                return f"the plugin {plugin.name} failed to check it"
            if answer is not None and answer is not FAILED:
                return str(answer)
        return None


def _bool(answer: Any) -> bool:
    if type(answer) is not bool:
        raise BadAnswer(f"it answered {str(answer)[:200]!r}, which is not a bool")
    return answer


def _principal(answer: Any) -> str | Reject | None:
    if answer is None:
        return None
    if isinstance(answer, Reject) and isinstance(answer.message, str):
        return Reject(answer.message[:MESSAGE_CHARACTERS_MAX])
    kind, colon, name = answer.partition(":") if isinstance(answer, str) else ("", "", "")
    if not (kind and colon and name) or len(answer.encode()) > PRINCIPAL_BYTES_MAX:
        raise BadAnswer(f"it answered {str(answer)[:200]!r}, which is not TYPE:NAME")
    return str(answer)


def _reason(answer: Any) -> str | None:
    if answer is None:
        return None
    if not isinstance(answer, str) or not answer:
        raise BadAnswer(f"it answered {str(answer)[:200]!r}, which is not a str or None")
    return answer[:MESSAGE_CHARACTERS_MAX]


def _intercepted(batch: RecordBatch, may_reject: bool) -> Callable[[Any], Reject | bytes | None]:
    def checked(answer: Any) -> Reject | bytes | None:
        if answer is None:
            return None
        if may_reject and isinstance(answer, Reject) and isinstance(answer.message, str):
            return Reject(answer.message[:MESSAGE_CHARACTERS_MAX])
        if isinstance(answer, Replace):
            return batch.rewritten(answer.records)
        raise BadAnswer(f"it answered {str(answer)[:200]!r}")

    return checked
