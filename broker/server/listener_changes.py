"""Adds and removes listeners while the broker runs, when `listeners` of this broker is altered.

As in Kafka, a listener name that remains keeps its address and its connections, even when its entry
changed. A new name is bound; a removed one is closed, and its connections end after the answers to
their pending requests. Clients get the new addresses from Metadata. New listeners are bound before
any is closed: when one cannot be bound, nothing changes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence

from barnabas.config import DynamicConfig
from barnabas.config.dynamic_config import LISTENER_NAMES, listeners_of
from barnabas.config.layers import Layers
from barnabas.config.listeners import Listener
from barnabas.server.listeners import advertised

Bind = Callable[[Listener], int]
Announce = Callable[[tuple[Listener, ...], tuple[Listener, ...]], None]


class ListenerChanges:
    """The listener changes of one broker. `bind` returns the port that a listener got. `announce`
    takes the bound and the advertised listeners. `problems` returns why a new listener has no
    certificates that it can serve with, or no logins."""

    def __init__(
        self,
        config: DynamicConfig,
        bound: Sequence[Listener],
        bind: Bind,
        unbind: Callable[[Listener], None],
        announce: Announce,
        problems: Callable[[Listener, Layers], list[str]],
    ) -> None:
        self._config = config
        self._bound = {row.name: row for row in bound}
        self._bind, self._unbind, self._announce = bind, unbind, announce
        self._problems = problems

    def check(self, layers: Layers, names: frozenset[str]) -> list[str]:
        """Returns the reasons why new listeners of `layers` cannot be bound; the change is refused
        then, because the broker must be able to start with the stored settings. Binds none."""
        if not names & LISTENER_NAMES:
            return []
        problems = []
        for row in listeners_of(layers).bound:
            bound = self._bound.get(row.name)
            if bound is None:
                problems += self._problems(row, layers)
                problems += [wrong] if (wrong := _why_not(row)) else []
            elif bound.protocol != row.protocol:
                # It would go on as it is: a protection that is asked for would not be there.
                problems.append(
                    f"listener.security.protocol.map: the security protocol of the listener"
                    f" {row.name} cannot change while it is bound. Add a listener of another name."
                )
        return problems

    def changed(self, names: frozenset[str]) -> None:
        """Applies a change of the settings `names`: binds new listeners, announces, and closes
        removed ones. Raises what `bind` raises; nothing has changed then."""
        if not names & LISTENER_NAMES:
            return
        asked = self._config.listeners
        wanted = {row.name: row for row in asked.bound}
        made: dict[str, Listener] = {}
        try:
            for name in wanted.keys() - self._bound.keys():
                row = wanted[name]
                made[name] = Listener(name, row.host, self._bind(row), row.protocol)
        except Exception:
            for row in made.values():
                self._unbind(row)
            raise
        gone = self._bound.keys() - wanted.keys()
        if not made and not gone:
            return
        known = self._bound | made
        self._bound = {name: known[name] for name in wanted}
        bound = tuple(self._bound.values())
        self._announce(bound, advertised(asked.advertised, bound))
        for name in gone:
            self._unbind(known[name])


def _why_not(row: Listener) -> str:
    try:
        found = socket.getaddrinfo(
            row.host, row.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(found[0][0], socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(found[0][4])
            trial.listen()
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        return f"listeners={row}: cannot listen there: {reason}. Take another address or port."
    return ""
