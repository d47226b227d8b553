"""The settings of the connection to ZooKeeper: checks them and returns typed values.

    zookeeper.connect                 host:port,host:port/chroot; the chroot follows the last host
    zookeeper.session.timeout.ms      ZooKeeper deletes the ephemeral nodes of a node that is silent
                                      for this time
    zookeeper.connection.timeout.ms   longest wait of a start; by default the session timeout
    zookeeper.max.in.flight.requests  largest number of requests in progress
    zookeeper.auth                    digest:USER:PASSWORD or sasl:USER:PASSWORD (DIGEST-MD5), this
                                      node's identity in ZooKeeper
    zookeeper.set.acl                 only this user can change the nodes
    zookeeper.ssl.client.enable       TLS; the other zookeeper.ssl.* say with which certificates

The names and defaults are Kafka's, except zookeeper.auth: Kafka takes a user from the section
Client of a JAAS file, and so does this broker (security/zookeeper_login.py).

This module is imported only when metadata.store=zookeeper, so that other starts are not slower.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

DEFAULT_PORT = 2181
CHROOT_LENGTH_MAX = 1024
HOSTS_MAX = 100
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s\[\]:/,]+)(?::([0-9]{1,5}))?")
_CHROOT = re.compile(r"(?:/[^\s/\x00-\x1f\x7f-\x9f]+)*/?")


TLS = "zookeeper.ssl."
ENABLE = TLS + "client.enable"
VERSIONS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("PEM", "PKCS12", "JKS")
NOT_AVAILABLE = ("cipher.suites", "crl.enable", "ocsp.enable")
SUFFIXES = {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}  # the default type of a file


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """The TLS settings of connections to ZooKeeper. They have their own stores: StoreSettings of
    tls/stores.py."""

    texts: dict[str, str | None] = field(repr=False)  # by names such as ssl.keystore.location
    versions: tuple[str, ...]
    checks_host: bool

    def text(self, base: str) -> str | None:
        return self.texts.get(base)

    def name_of(self, base: str) -> str:
        return f"zookeeper.{base}"


@dataclass(frozen=True, slots=True)
class ZooKeeperLogin:
    """The identity of this node. `scheme`: digest, or sasl for DIGEST-MD5."""

    scheme: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """The typed settings of the connection to ZooKeeper."""

    hosts: str  # host:port,host:port
    chroot: str = ""  # empty, or /a/b
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    in_flight_max: int = 10
    login: ZooKeeperLogin | None = None
    set_acl: bool = False
    tls: ZooKeeperTls | None = None

    @property
    def has_owner(self) -> bool:
        """Returns whether the znodes can have an owner: a user, or the subject of a certificate."""
        has_certificate = self.tls is not None and self.tls.text("ssl.keystore.location")
        return self.login is not None or bool(has_certificate)


def zookeeper_settings(get: Callable[[str], object]) -> ZooKeeperSettings:
    """Returns the settings from the typed values of a configuration. Raises ValueError with one
    line: setting, reason and remedy."""
    hosts, chroot = _connect(str(get("zookeeper.connect") or ""))
    session_ms = _number(get("zookeeper.session.timeout.ms"))
    connection_ms = get("zookeeper.connection.timeout.ms")
    auth = get("zookeeper.auth")
    return ZooKeeperSettings(
        hosts=hosts,
        chroot=chroot,
        session_timeout_ms=session_ms,
        connection_timeout_ms=session_ms if connection_ms is None else _number(connection_ms),
        in_flight_max=_number(get("zookeeper.max.in.flight.requests")),
        login=_login(str(auth)) if auth else None,
        set_acl=bool(get("zookeeper.set.acl")),
        tls=_tls(get),
    )


def owner_problem(settings: ZooKeeperSettings) -> str | None:
    """Returns why zookeeper.set.acl would protect nothing; None if it protects something."""
    if not settings.set_acl or settings.has_owner:
        return None
    return (
        "zookeeper.set.acl=true needs zookeeper.auth: znodes would have no owner."
        " Set zookeeper.auth=digest:USER:PASSWORD, or remove zookeeper.set.acl."
    )


def zookeeper_problems(store: str, get: Callable[[str], object]) -> list[str]:
    """Returns the errors of the ZooKeeper settings. `store`: `embedded` or `zookeeper`."""
    if store == "zookeeper":
        try:
            problem = owner_problem(zookeeper_settings(get))
        except ValueError as error:
            return [str(error)]
        if problem is None or "login.config" in os.environ.get("KAFKA_OPTS", ""):
            return []  # a JAAS file may name the owner: the start reads it
        return [problem]
    return [
        f"{name} asks for protection of nodes in ZooKeeper, and metadata.store={store} keeps none"
        " there. Set metadata.store=zookeeper, or remove the setting."
        for name in ("zookeeper.auth", "zookeeper.set.acl", ENABLE)
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
                f"zookeeper.connect={text}: {host.strip()!r} is not HOST:PORT. Write hosts between"
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


def _login(text: str) -> ZooKeeperLogin:
    """Returns the identity in a value of zookeeper.auth. The text is a secret: no error shows it.
    Raises ValueError."""
    scheme, _, rest = text.partition(":")
    user, colon, password = rest.partition(":")
    if scheme not in ("digest", "sasl") or not user or not colon or not password:
        raise ValueError(
            "zookeeper.auth is not of the form digest:USER:PASSWORD or sasl:USER:PASSWORD, the two"
            " schemes that this broker supports."
        )
    return ZooKeeperLogin(scheme, user, password)


def _tls(get: Callable[[str], object]) -> ZooKeeperTls | None:
    """Returns the TLS settings; None: the connection is plaintext. Raises ValueError."""
    stores = {
        f"ssl.{store}.{part}": get(f"{TLS}{store}.{part}")
        for store in ("keystore", "truststore")
        for part in ("location", "password", "type")
    }
    refused = [TLS + name for name in NOT_AVAILABLE if get(TLS + name)]
    if not get(ENABLE):
        asked = [f"zookeeper.{name}" for name, value in stores.items() if value] + refused
        if asked:
            raise ValueError(
                f"{', '.join(asked)}: the connection to ZooKeeper would not be encrypted. Set"
                f" {ENABLE}=true, or remove these settings."
            )
        return None
    if refused:
        raise ValueError(f"{', '.join(refused)}: not available. Remove these settings.")
    if not stores["ssl.truststore.location"]:
        raise ValueError(
            f"{ENABLE}=true needs {TLS}truststore.location with the certificates to trust."
            " (Java would trust its own authorities.)"
        )
    versions = _versions(get)
    return ZooKeeperTls(_texts(stores), versions, _checks_host(get))


def _texts(stores: dict[str, object]) -> dict[str, str | None]:
    """Returns the settings of the stores, with a type for each. Raises ValueError."""
    texts = {name: None if value is None else str(value) for name, value in stores.items()}
    for store in ("keystore", "truststore"):
        location = texts[f"ssl.{store}.location"] or ""
        suffix = os.path.splitext(location)[1].lower()
        kind = texts[f"ssl.{store}.type"] or SUFFIXES.get(suffix, "JKS")
        if kind.upper() not in STORE_TYPES:
            raise ValueError(f"{TLS}{store}.type={kind} is not one of {', '.join(STORE_TYPES)}.")
        texts[f"ssl.{store}.type"] = kind.upper()
    # ZooKeeper has no setting for the password of a key.
    texts["ssl.key.password"] = texts["ssl.keystore.password"]
    return texts


def _versions(get: Callable[[str], object]) -> tuple[str, ...]:
    given = get(TLS + "enabled.protocols")
    found = [str(name) for name in given] if isinstance(given, (list, tuple)) else []
    found = found or [str(get(TLS + "protocol"))]
    unknown = [name for name in found if name not in VERSIONS]
    if unknown:
        raise ValueError(
            f"{TLS}enabled.protocols: {', '.join(unknown)} is not offered. Use"
            f" {', '.join(VERSIONS)}."
        )
    return tuple(name for name in VERSIONS if name in found)


def _checks_host(get: Callable[[str], object]) -> bool:
    name = TLS + "endpoint.identification.algorithm"
    algorithm = str(get(name) or "")
    if algorithm.upper() not in ("", "HTTPS"):
        raise ValueError(f"{name}={algorithm}: use HTTPS, or an empty value to check no host name.")
    return bool(algorithm)
