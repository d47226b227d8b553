"""What a client is told to connect to: the advertised listeners with the ports that were bound."""

from collections.abc import Sequence

from barnabas.config.listeners import Listener


def advertised(configured: Sequence[Listener], bound: Sequence[Listener]) -> tuple[Listener, ...]:
    """Port 0 stands for the port that the listener of that name was given."""
    ports = {row.name: row.port for row in bound}
    return tuple(
        Listener(row.name, row.host, row.port or ports[row.name], row.protocol)
        for row in configured
    )
