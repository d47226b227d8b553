"""Listeners of one broker: the addresses that it binds, and the addresses that clients get."""

from collections.abc import Sequence

from barnabas.config.listeners import Listener


class Listeners:
    """The listeners of one broker. Both tuples change together when `listeners` is altered; they
    are empty before the start."""

    def __init__(self) -> None:
        self.bound: tuple[Listener, ...] = ()
        self.advertised: tuple[Listener, ...] = ()


def advertised(configured: Sequence[Listener], bound: Sequence[Listener]) -> tuple[Listener, ...]:
    """Returns the configured advertised listeners; for port 0 it takes the port of the bound
    listener of the same name."""
    ports = {row.name: row.port for row in bound}
    return tuple(
        Listener(row.name, row.host, row.port or ports[row.name], row.protocol)
        for row in configured
    )
