"""One request of a page: the user's client, the parameters, and what this broker knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from barnabas.client import ClientError, Cluster
from barnabas.client.admin import cluster_operations
from barnabas.console.history import History
from barnabas.console.sessions import Session
from barnabas.errors import KafkaError
from barnabas.hooks.direct import ClientPlugins
from barnabas.hooks.plugin import Plugin
from barnabas.security.acl_codes import DESCRIBE

T = TypeVar("T")
PARAMETER_CHARS_MAX = 1000


class OwnBroker(NamedTuple):
    """What this broker knows of itself and the protocol does not have."""

    node_id: int
    problem: Callable[[], str]  # why it serves no clients; "" when it does
    warning: Callable[[], str]  # what is wrong although it does
    plugins: Callable[[], Sequence[Plugin]]
    plugin_metrics: Callable[[Plugin], Mapping[str, Mapping[str, float]]]
    history: History
    decoders: Sequence[str]  # console.decoders
    decoder_plugins: ClientPlugins


class BadParameter(Exception):
    """A parameter of the page that cannot be used; the text is one line."""


class NotPermitted(Exception):
    """The user may not see or do this; the text is one line."""


class Page(NamedTuple):
    """A page to show: its template and the values for it. `refresh_s`: after so many seconds the
    browser loads it again; 0: never."""

    template: str
    values: Mapping[str, Any]
    refresh_s: int = 0


class Moved(NamedTuple):
    """After a change: the browser goes to `path`, which shows `notice`."""

    path: str
    notice: str


@dataclass(frozen=True)
class Part(Generic[T]):
    """One part of a page: its value, or why the broker gave none."""

    value: T | None
    problem: str = ""


def refusal(error: Exception) -> str:
    """Returns an error of a broker or the client as one line."""
    text = " ".join(str(error).split()).rstrip(".")
    name = getattr(error, "name", "")
    return f"{text} ({name})." if name and f"({name})" not in text else f"{text}."


def link(path: str, **values: object) -> str:
    """Returns a path with parameters, for every text: `/topic?name=a%26b`."""
    pairs = [
        f"{name}={quote(str(v), safe='')}" for name, v in values.items() if v not in (None, "")
    ]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


class Visit:
    """One request of a page. `given`: the parameters of the query, or the fields of the form."""

    def __init__(
        self, own: OwnBroker, session: Session, client: Cluster, given: Mapping[str, str]
    ) -> None:
        self.own, self.session, self.client = own, session, client
        self._given = given

    def text(self, name: str, default: str = "") -> str:
        """Returns a parameter without spaces at its ends. Raises BadParameter."""
        found = self._given.get(name, "").strip() or default
        if len(found) > PARAMETER_CHARS_MAX:
            raise BadParameter(f"{name} has more than {PARAMETER_CHARS_MAX} characters.")
        return found

    def needed(self, name: str) -> str:
        """Returns a parameter exactly as given. Raises BadParameter when it is absent."""
        found = self._given.get(name, "")
        if not found or len(found) > PARAMETER_CHARS_MAX:
            raise BadParameter(f"{name} is missing.")
        return found

    def number(self, name: str, default: int, least: int = 0, most: int = 2**63 - 1) -> int:
        """Returns a parameter as a number from `least` to `most`. Raises BadParameter."""
        text = self.text(name)
        if not text:
            return default
        try:
            found = int(text) if len(text) <= 20 else most + 1
        except ValueError:
            found = most + 1
        if not least <= found <= most:
            raise BadParameter(f"{name}={text[:40]} is not a number from {least} to {most}.")
        return found

    def part(self, ask: Callable[[], T]) -> Part[T]:
        """Returns what `ask` returns, or the reason why the broker refuses it, so that a user sees
        those parts of a page that the user's rights permit."""
        try:
            return Part(ask())
        except (KafkaError, ClientError) as error:
            return Part(None, refusal(error))

    @cached_property
    def operations(self) -> int:
        """The operations with the cluster that the broker permits this user, as a bit set."""
        return cluster_operations(self.client)

    @property
    def may_describe_cluster(self) -> bool:
        return self.may(DESCRIBE, self.operations)

    @staticmethod
    def may(operation: int, operations: int) -> bool:
        """Returns whether a bit set of operations has one."""
        return bool(operations >> operation & 1)

    @property
    def may_change(self) -> bool:
        """Returns whether the user has logged in; the broker checks the rights of each change."""
        return self.session.login is not None

    def check_describe_cluster(self, what: str) -> None:
        """Raises NotPermitted."""
        if not self.may_describe_cluster:
            raise NotPermitted(f"{what} needs the right DESCRIBE on the cluster.")
