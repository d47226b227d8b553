"""Listeners of one broker: where it listens, and which addresses clients get."""

from collections.abc import Sequence

from barnabas.config.listeners import Listener


class Listeners:
    """Both change together when `listeners` is altered; they are empty before the start."""

    def __init__(self) -> None:
        self.bound: tuple[Listener, ...] = ()
        self.advertised: tuple[Listener, ...] = ()


def advertised(configured: Sequence[Listener], bound: Sequence[Listener]) -> tuple[Listener, ...]:
    """Port 0 stands for the port that the listener of that name was given."""
    ports = {row.name: row.port for row in bound}
    return tuple(
        Listener(row.name, row.host, row.port or ports[row.name], row.protocol)
        for row in configured
    )
