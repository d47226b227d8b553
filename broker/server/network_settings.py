"""Applies the network settings to the reactor, at the start and after each change.

Plain limits are passed by their names. The limits of a listener, the limits of single addresses
and the number of threads need one step each.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable

from barnabas.cext.network.reactor import LIMITS, Reactor
from barnabas.config import DynamicConfig
from barnabas.config.connection_limits import (
    OF_A_LISTENER,
    OVERRIDES,
    name_of_limit,
    parse_overrides,
)
from barnabas.config.settings import BROKER_SETTINGS
from barnabas.config.values import parse_value

log = logging.getLogger("barnabas.network")

THREADS = "num.network.threads"


def network_threads(config: DynamicConfig, is_given: bool) -> int:
    """Returns the number of network threads at a start: num.network.threads if it is set
    (`is_given`, or not Kafka's default of 3), otherwise 3, but at most one for each core. On two
    cores a request under 50 connections cost 7.6 us of CPU with 3 threads, 6.4 with 2, 6.0 with 1;
    2 threads had the highest throughput (medians of 5 alternating loads)."""
    count = config.integer(THREADS)
    asked = is_given or str(count) != BROKER_SETTINGS[THREADS].default
    return count if asked else min(count, os.cpu_count() or count)


class NetworkSettings:
    """The network settings of one broker. Call `begin` when its listeners are bound, `changed`
    from then on."""

    def __init__(self, reactor: Reactor, config: DynamicConfig) -> None:
        self._reactor = reactor
        self._config = config
        self._listeners: tuple[str, ...] = ()

    def begin(self, listeners: Iterable[str]) -> None:
        """Applies the limits of `listeners` and of single addresses. Call this before the first
        connection is accepted. Raises OSError when a host of
        max.connections.per.ip.overrides has no address."""
        self.listen(listeners)
        if self._config.text(OVERRIDES):
            hosts = parse_overrides(self._config.text(OVERRIDES))
            self._reactor.set_address_limits(addresses(hosts))

    def listen(self, listeners: Iterable[str]) -> None:
        """Sets the names of the bound listeners, and applies their limits."""
        self._listeners = tuple(listeners)
        for listener in self._listeners:
            for name in OF_A_LISTENER:
                self._limit_listener(listener, name)

    def changed(self, names: frozenset[str]) -> None:
        for name in names & LIMITS.keys():
            self._reactor.set_limit(name, self._config.integer(name))
        for listener in self._listeners:
            for name in OF_A_LISTENER:
                if name_of_limit(listener, name) in names:
                    self._limit_listener(listener, name)
        if OVERRIDES in names:
            hosts = parse_overrides(self._config.text(OVERRIDES))
            self._reactor.set_address_limits(addresses(hosts))
        if THREADS in names:
            self._reactor.resize(self._config.integer(THREADS))

    def _limit_listener(self, listener: str, name: str) -> None:
        setting = BROKER_SETTINGS[name]
        try:
            text = str(self._config[name_of_limit(listener, name)])
        except KeyError:
            text = str(setting.default)
        value = parse_value(setting, text)
        assert isinstance(value, int)
        self._reactor.set_listener_limit(listener, name, value)


def addresses(hosts: dict[str, int]) -> dict[bytes, int]:
    """Returns the limits by the 16 bytes of each address of each host; an IPv4 address is mapped
    into IPv6. `hosts`: limits by host name. Raises OSError when a host has no address."""
    found = {}
    for host, most in hosts.items():
        for family, _, _, _, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            if family == socket.AF_INET:
                found[bytes(10) + b"\xff\xff" + socket.inet_aton(str(address[0]))] = most
            elif family == socket.AF_INET6:
                found[socket.inet_pton(family, str(address[0]).partition("%")[0])] = most
    return found
