"""barnabas: an Apache-Kafka-compatible message broker in one Python process.

    from barnabas import Broker

    with Broker({"log.dirs": "/tmp/data", "listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
        client(bootstrap_servers=broker.bootstrap_servers)

The rooms below this package are described in ARCHITECTURE.md. The data path reads, in order:
cext/reactor, broker/api/k00_produce, cext/partitions, cext/log, cext/index, cext/records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from barnabas.node import Node

__version__ = "0.1.0"
__all__ = ["Broker", "__version__"]


class Broker:
    """One broker inside this process; several may run side by side.

    `settings` are Kafka's names; the environment and files are not looked at. Raises ConfigError
    for a bad setting when it is made, and CannotStart from `start`.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        from barnabas.config import BrokerConfig
        from barnabas.node import Node

        self.node: Node = Node(BrokerConfig(dict(settings or {})))

    def start(self) -> Broker:
        """Returns when clients are served."""
        self.node.start()
        return self

    def stop(self) -> None:
        """A clean stop: everything on disk, connections closed. May be called twice."""
        self.node.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first listener, the port that was bound."""
        first = self.node.listening[0]
        return f"{first.host}:{first.port}"

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
