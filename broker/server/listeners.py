"""What a client is told to connect to: the advertised listeners with the ports that were bound."""

from collections.abc import Mapping, Sequence

from barnabas.config.listeners import Listener


def advertised(
    configured: Sequence[Listener], bound_ports: Mapping[str, int]
) -> tuple[Listener, ...]:
    """Port 0 stands for the port that the listener of that name was given."""
    return tuple(
        Listener(row.name, row.host, row.port or bound_ports[row.name], row.protocol)
        for row in configured
    )
