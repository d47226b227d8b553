"""The address of a broker, from its registration in ZooKeeper (/brokers/ids/N)."""

import json
from urllib.parse import urlsplit

from barnabas.client.security import Security, protocol_of

PLAINTEXT = protocol_of(None)


def address_of(data: bytes, security: Security | None = None) -> str | None:
    """Returns HOST:PORT of a broker's listener with the protocol of `security`, from the JSON of
    Kafka 0.8 and later (endpoints, or host and port, which are those of PLAINTEXT) or from the
    `creator:host:port` of 0.7. Returns None when the registration has no such listener or cannot be
    parsed."""
    protocol = protocol_of(security)
    text = data.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except ValueError:
        pieces = text.rsplit(":", 2)
        is_address = protocol == PLAINTEXT and len(pieces) == 3 and pieces[2].isdecimal()
        return ":".join(pieces[1:]) if is_address else None
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("host"), str) and isinstance(found.get("port"), int):
        if protocol == PLAINTEXT and found["host"] and found["port"] > 0:
            return _joined(found["host"], found["port"])
    protocols = found.get("listener_security_protocol_map") or {}
    for endpoint in found.get("endpoints") or ():
        name, _, _ = str(endpoint).partition("://")
        if protocols.get(name, name) == protocol:
            parts = urlsplit(f"//{str(endpoint).partition('://')[2]}")
            if parts.hostname and parts.port:
                return _joined(parts.hostname, parts.port)
    return None


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
