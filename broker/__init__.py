"""barnabas: an Apache-Kafka-compatible message broker in one Python process.

    from barnabas import Broker

    with Broker() as broker:  # on a free port, with its data in memory
        client(bootstrap_servers=broker.bootstrap_servers)

The packages below this one are described in ARCHITECTURE.md. The data path reads, in order:
cext/network/reactor, broker/api/k00_produce, cext/produce/produce, cext/partition/partitions,
cext/log/log, cext/log/segment, cext/log/index, cext/record/records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.hooks.specs import hookimpl, hookspec
    from barnabas.testing.broker import Broker

__version__ = "0.1.0"
__all__ = ["Broker", "__version__", "hookimpl", "hookspec"]


def __getattr__(name: str) -> object:
    """Imports a public name at its first use, so that commands and clients do not load the
    broker."""
    if name == "Broker":
        from barnabas.testing.broker import Broker

        return Broker
    if name in ("hookimpl", "hookspec"):
        from barnabas.hooks import specs

        return specs.hookimpl if name == "hookimpl" else specs.hookspec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
