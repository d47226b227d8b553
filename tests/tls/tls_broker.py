"""A broker with a TLS listener beside its plain one, and its certificates."""

import contextlib
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tls.authority import Authority, Issued

from barnabas import Broker

AUTHORITY = Authority()
CLIENTS = Authority("CN=authority of clients,O=Example")
OWN = AUTHORITY.issue("CN=broker,O=Example", kind="rsa")
PAIR = {
    "listeners": "SAFE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "SAFE:SSL,PLAINTEXT:PLAINTEXT",
}


def pem_settings(folder: Path, issued: Issued = OWN, prefix: str = "") -> dict[str, str]:
    return {
        prefix + "ssl.keystore.type": "PEM",
        prefix + "ssl.keystore.location": str(issued.write(folder / "broker.pem")),
    }


def trust_settings(folder: Path, prefix: str = "") -> dict[str, str]:
    path = folder / "clients.pem"
    path.write_text(CLIENTS.pem)
    return {
        prefix + "ssl.truststore.type": "PEM",
        prefix + "ssl.truststore.location": str(path),
    }


def client_context(own: Issued | None = None, folder: Path | None = None) -> ssl.SSLContext:
    return AUTHORITY.client_context(own, folder)


@dataclass
class Served:
    """The broker, and the addresses of its listeners."""

    broker: Broker
    safe: str
    plain: str

    @property
    def port(self) -> int:
        return int(self.safe.rpartition(":")[2])


@contextlib.contextmanager
def tls_broker(folder: Path, settings: dict[str, str] | None = None) -> Iterator[Served]:
    """`settings` replace the PEM keystore; the listeners are SAFE and PLAINTEXT."""
    given = pem_settings(folder) if settings is None else settings
    with Broker(PAIR | given) as broker:
        ports = {row.name: row.port for row in broker.node.listeners}
        plain = f"127.0.0.1:{ports.get('PLAINTEXT')}"
        yield Served(broker, f"localhost:{ports['SAFE']}", plain)


def replace_file(path: Path, text: str) -> None:
    """As tools that renew certificates do: a reader sees the old file or the new one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    os.replace(new, path)
