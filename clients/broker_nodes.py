"""The address of a broker, from its registration in ZooKeeper (/brokers/ids/N)."""

import json
from urllib.parse import urlsplit

PLAINTEXT = "PLAINTEXT"


def address_of(data: bytes) -> str | None:
    """Returns HOST:PORT of a broker's PLAINTEXT listener, from the JSON of Kafka 0.8 and later
    (host and port, or endpoints) or from the `creator:host:port` of 0.7. Returns None when the
    registration has no such listener or cannot be parsed."""
    text = data.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except ValueError:
        pieces = text.rsplit(":", 2)
        return ":".join(pieces[1:]) if len(pieces) == 3 and pieces[2].isdecimal() else None
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("host"), str) and isinstance(found.get("port"), int):
        if found["host"] and found["port"] > 0:
            return _joined(found["host"], found["port"])
    protocols = found.get("listener_security_protocol_map") or {}
    for endpoint in found.get("endpoints") or ():
        name, _, _ = str(endpoint).partition("://")
        if protocols.get(name, name) == PLAINTEXT:
            parts = urlsplit(f"//{str(endpoint).partition('://')[2]}")
            if parts.hostname and parts.port:
                return _joined(parts.hostname, parts.port)
    return None


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
