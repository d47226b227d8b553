"""The settings of the connection to ZooKeeper: checks them and returns typed values.

    zookeeper.connect                 host:port,host:port/chroot; the chroot follows the last host
    zookeeper.session.timeout.ms      ZooKeeper deletes the ephemeral nodes of a node that is silent
                                      for this time
    zookeeper.connection.timeout.ms   longest wait of a start; by default the session timeout
    zookeeper.max.in.flight.requests  largest number of requests in progress
    zookeeper.auth                    digest:USER:PASSWORD, this node's identity in ZooKeeper
    zookeeper.set.acl                 only this user can change the nodes; needs zookeeper.auth

This module is imported only when metadata.store=zookeeper, so that other starts are not slower.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

DEFAULT_PORT = 2181
CHROOT_LENGTH_MAX = 1024
HOSTS_MAX = 100
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s\[\]:/,]+)(?::([0-9]{1,5}))?")
_CHROOT = re.compile(r"(?:/[^\s/\x00-\x1f\x7f-\x9f]+)*/?")


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    hosts: str  # host:port,host:port
    chroot: str = ""  # empty, or /a/b
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    in_flight_max: int = 10
    auth: tuple[str, str] | None = None  # user, password
    set_acl: bool = False


def zookeeper_settings(get: Callable[[str], object]) -> ZooKeeperSettings:
    """Returns the settings from the typed values of a configuration. Raises ValueError with one
    line: setting, reason and remedy."""
    hosts, chroot = _connect(str(get("zookeeper.connect") or ""))
    session_ms = _number(get("zookeeper.session.timeout.ms"))
    connection_ms = get("zookeeper.connection.timeout.ms")
    auth = get("zookeeper.auth")
    set_acl = bool(get("zookeeper.set.acl"))
    if set_acl and not auth:
        raise ValueError(
            "zookeeper.set.acl=true needs zookeeper.auth: nodes would have no owner."
            " Set zookeeper.auth=digest:USER:PASSWORD, or remove zookeeper.set.acl."
        )
    return ZooKeeperSettings(
        hosts=hosts,
        chroot=chroot,
        session_timeout_ms=session_ms,
        connection_timeout_ms=session_ms if connection_ms is None else _number(connection_ms),
        in_flight_max=_number(get("zookeeper.max.in.flight.requests")),
        auth=_auth(str(auth)) if auth else None,
        set_acl=set_acl,
    )


def zookeeper_problems(store: str, get: Callable[[str], object]) -> list[str]:
    """Returns the errors of the ZooKeeper settings. `store`: `embedded` or `zookeeper`."""
    if store == "zookeeper":
        try:
            zookeeper_settings(get)
        except ValueError as error:
            return [str(error)]
        return []
    return [
        f"{name} asks for protection of nodes in ZooKeeper, and metadata.store={store} keeps none"
        " there. Set metadata.store=zookeeper, or remove the setting."
        for name in ("zookeeper.auth", "zookeeper.set.acl")
        if get(name)
    ]


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _connect(text: str) -> tuple[str, str]:
    if not text.strip():
        raise ValueError(
            "metadata.store=zookeeper needs zookeeper.connect. Set it to host:port,"
            " or set metadata.store=embedded."
        )
    hosts, slash, chroot = text.strip().partition("/")
    found = []
    for host in hosts.split(","):
        match = _HOST.fullmatch(host.strip())
        port = int(match[2] or DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 65536:
            raise ValueError(
                f"zookeeper.connect={text}: {host.strip()!r} is no host:port. Hosts stand between"
                " commas, and one chroot may follow the last: a:2181,b:2181/kafka."
            )
        found.append(f"{match[1]}:{port}")
    chroot = (slash + chroot).rstrip("/")
    parts = chroot.split("/")[1:]
    if not _CHROOT.fullmatch(chroot) or "." in parts or ".." in parts:
        raise ValueError(f"zookeeper.connect={text}: {chroot!r} is not the path of a node.")
    if len(found) > HOSTS_MAX or len(chroot.encode()) > CHROOT_LENGTH_MAX:
        raise ValueError(
            f"zookeeper.connect: at most {HOSTS_MAX} hosts and a chroot of {CHROOT_LENGTH_MAX}"
            " bytes."
        )
    return ",".join(found), chroot


def _auth(text: str) -> tuple[str, str]:
    """Returns user and password. The text is a secret: no error shows it. Raises ValueError."""
    scheme, _, rest = text.partition(":")
    user, colon, password = rest.partition(":")
    if scheme != "digest" or not user or not colon or not password:
        raise ValueError(
            "zookeeper.auth is not of the form digest:USER:PASSWORD, the one scheme that is known"
            " here."
        )
    return user, password
