"""The listeners of a broker: `listeners`, `advertised.listeners` and their protocol map.

Differences from Kafka: an empty host is 127.0.0.1; a listener without authentication that other
hosts can reach needs `allow.unauthenticated.remote=true`; the broker does not bind the controller
listeners of a KRaft file, because the node keeps its metadata itself. With port 0 the operating
system selects a free port; an advertised port 0 means the bound port."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.config.settings import BROKER_SETTINGS, ConfigError
from barnabas.config.values import Value, list_of, parse_value

LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = ("0.0.0.0", "::")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LISTENER_COUNT_MAX = 64
LEGACY07 = "LEGACY07"  # the listener for clients of Kafka 0.7


class Listener:
    """One address with its listener name and its security protocol."""

    __slots__ = ("name", "host", "port", "protocol")

    def __init__(self, name: str, host: str, port: int, protocol: str = "PLAINTEXT") -> None:
        self.name, self.host, self.port, self.protocol = name, host, port, protocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"<Listener {self} {self.protocol}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listener) and (str(self), self.protocol) == (
            str(other),
            other.protocol,
        )

    def __hash__(self) -> int:
        return hash(str(self))


class PrefixedSettings:
    """Settings of a listener: a name with a prefix overrides the name without it.

    `values`: the texts of all settings in force; `prefixes`: the one with the highest priority
    first."""

    def __init__(self, values: Mapping[str, str], *prefixes: str) -> None:
        self._values, self._prefixes = values, prefixes

    def name_of(self, base: str) -> str:
        """Returns the name under which the value in force is set."""
        return next((p + base for p in self._prefixes if p + base in self._values), base)

    def value(self, base: str) -> Value:
        """Returns the typed value in force. Raises ConfigError."""
        setting = BROKER_SETTINGS[base]
        return parse_value(setting, self._values.get(self.name_of(base), setting.default))

    def integer(self, base: str) -> int:
        value = self.value(base)
        assert isinstance(value, int), base
        return value

    def text(self, base: str) -> str | None:
        """Returns the value as text; None when it is not set or empty. Raises ConfigError."""
        value = self.value(base)
        return str(value) if value not in (None, "") else None

    def boolean(self, base: str) -> bool:
        return self.value(base) is True

    def names(self, base: str) -> tuple[str, ...]:
        value = self.value(base)
        return value if isinstance(value, tuple) else ()


def is_loopback(host: str) -> bool:
    """Returns whether `host` is a loopback address; it asks no name server."""
    if host in ("localhost", "::1"):
        return True
    parts = host.split(".")
    return (
        len(parts) == 4 and parts[0] == "127" and all(p.isdigit() and int(p) < 256 for p in parts)
    )


def parse_listeners(text: str, key: str) -> list[Listener]:
    """Returns the listeners of a text NAME://host:port,NAME://host:port; the caller sets the
    protocols. Raises ConfigError."""
    entries = list_of(text)
    if len(entries) > LISTENER_COUNT_MAX:
        raise ConfigError(f"{key}: more than {LISTENER_COUNT_MAX} listeners.")
    found = [_parse_one(entry, key) for entry in entries]
    names = [listener.name for listener in found]
    for name in sorted({n for n in names if names.count(n) > 1}):
        raise ConfigError(
            f"{key}={text}: the name {name} occurs more than once. Give each its own name."
        )
    return found


def _parse_one(entry: str, key: str) -> Listener:
    name, separator, address = entry.partition("://")
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536
    host_is_well_formed = bracketed or not set(host) & set(":[]/ ")
    if not (separator and name and colon and is_port and host_is_well_formed):
        raise ConfigError(
            f"{key}={entry}: not an address. Write NAME://host:port, port 0 to 65535."
        )
    return Listener(name.upper(), host[1:-1] if bracketed else host, int(port))


def parse_protocol_map(text: str) -> dict[str, str]:
    """Returns the security protocol of each listener name in a value of
    listener.security.protocol.map. Raises ConfigError."""
    key = "listener.security.protocol.map"
    found: dict[str, str] = {}
    for entry in list_of(text):
        name, colon, protocol = entry.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in PROTOCOLS:
            raise ConfigError(
                f"{key}: {entry!r} is not an entry. Write NAME:PROTOCOL, one of"
                f" {', '.join(PROTOCOLS)}."
            )
        if name in found:
            raise ConfigError(f"{key}: the name {name} occurs more than once. Remove one.")
        found[name] = protocol
    return found


class Listeners:
    """The listeners of one configuration: `bound`, `unbound` (those of the controller),
    `advertised` and the name of the listener between brokers. Raises ConfigError."""

    def __init__(self, get: Callable[[str], Value], is_set: Callable[[str], bool]) -> None:
        self._get, self._is_set = get, is_set
        self.controller_names = {name.upper() for name in self._names("controller.listener.names")}
        self.unbound: list[Listener] = []
        self.bound = self._bound()
        self.advertised = self._advertised()
        self.inter_broker_name = self._inter_broker_name()

    def _names(self, key: str) -> tuple[str, ...]:
        value = self._get(key)
        return value if isinstance(value, tuple) else ()

    def _text(self, key: str) -> str:
        value = self._get(key)
        return ",".join(value) if isinstance(value, tuple) else "" if value is None else str(value)

    def _old_form(self, host_key: str, port_key: str, key: str) -> str | None:
        """Returns the listener of host.name and port, or of the advertised pair; None when the
        newer setting `key` is set or neither of the pair is."""
        if self._is_set(key) or not (self._is_set(host_key) or self._is_set(port_key)):
            return None
        host, port = self._text(host_key), self._text(port_key) or self._text("port")
        return f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"

    def _bound(self) -> list[Listener]:
        text = self._old_form("host.name", "port", "listeners") or self._text("listeners")
        listeners = parse_listeners(text, "listeners")
        protocols = parse_protocol_map(self._text("listener.security.protocol.map"))
        bound = []
        for listener in listeners:
            listener.host = listener.host or LOOPBACK
            if listener.name in self.controller_names:
                self.unbound.append(listener)
                continue
            if listener.name == LEGACY07:
                protocols.setdefault(LEGACY07, "PLAINTEXT")
                if protocols[LEGACY07] != "PLAINTEXT":
                    raise ConfigError(
                        f"listener.security.protocol.map={LEGACY07}:{protocols[LEGACY07]}: clients"
                        " of Kafka 0.7 have neither TLS nor logins. Map it to PLAINTEXT, or remove"
                        " the entry."
                    )
            if listener.name not in protocols:
                raise ConfigError(
                    f"listeners={listener}: no protocol is known for {listener.name}."
                    f" Add {listener.name}:PLAINTEXT to listener.security.protocol.map."
                )
            listener.protocol = protocols[listener.name]
            bound.append(listener)
        if not bound:
            raise ConfigError(
                f"listeners={text}: nothing for clients to connect to."
                " Add a listener that is not in controller.listener.names."
            )
        self._check_roles([row.name for row in self.unbound])
        self._check_ports(listeners)
        self._check_reach(bound)
        return bound

    def _check_roles(self, unbound: list[str]) -> None:
        """Raises ConfigError for a KRaft file of a broker that has a listener of the controller, as
        Kafka does. A controller without a listener is no error: nothing connects to it here."""
        roles, key = self._names("process.roles"), "controller.listener.names"
        if roles == ("broker",) and unbound:
            raise ConfigError(
                f"{key}={self._text(key)}: listeners has {', '.join(unbound)}, and process.roles"
                " has no controller. Remove it from listeners, or add the role."
            )

    def _check_ports(self, listeners: list[Listener]) -> None:
        """Raises ConfigError when two listeners have the same port; one IPv4 and one IPv6 address
        may share it."""
        seen: dict[int, list[Listener]] = {}
        for listener in listeners:
            seen.setdefault(listener.port, []).append(listener)
        for port, same in seen.items():
            families = {":" in listener.host for listener in same}
            if port and len(same) > len(families):
                raise ConfigError(
                    f"listeners: more than one listener has port {port}. Give each its own port."
                )

    def _check_reach(self, bound: list[Listener]) -> None:
        for listener in bound:
            is_open = listener.protocol == "PLAINTEXT" and not is_loopback(listener.host)
            if is_open and not self._get("allow.unauthenticated.remote"):
                raise ConfigError(
                    f"listeners={listener}: other hosts could use this broker without"
                    f" authentication. Bind {LOOPBACK}, make it ask for a login"
                    " (`barnabas security init --host NAME` writes the settings), or set"
                    " allow.unauthenticated.remote=true."
                )

    def _advertised(self) -> list[Listener]:
        key = "advertised.listeners"
        old = self._old_form("advertised.host.name", "advertised.port", key)
        text = old or (self._text(key) if self._is_set(key) else "")
        if old and old.startswith("PLAINTEXT://:"):
            text = f"PLAINTEXT://{self.bound[0].host}:{old.rpartition(':')[2]}"
        protocol_of = {listener.name: listener.protocol for listener in self.bound}
        found = []
        for listener in parse_listeners(text, key) if text else self.bound:
            if listener.name in self.controller_names:
                continue
            if listener.name == LEGACY07:
                if not text:
                    continue
                raise ConfigError(
                    f"{key}={listener}: the listener of Kafka 0.7 cannot be advertised, because its"
                    " clients do not ask for addresses. Remove it."
                )
            if listener.name not in protocol_of:
                raise ConfigError(
                    f"{key}={listener}: {listener.name} is not among the listeners."
                    " Use a name that listeners has, or add it there."
                )
            host = listener.host or LOOPBACK
            if host in EVERY_ADDRESS:
                raise ConfigError(
                    f"{key}={listener}: clients cannot connect to {host}."
                    f" Set {key} to the name or address clients use."
                )
            found.append(Listener(listener.name, host, listener.port, protocol_of[listener.name]))
        if not found:
            raise ConfigError(f"{key}={text}: no listener for clients. Add one.")
        return found

    def _inter_broker_name(self) -> str:
        """Returns the listener for connections of other brokers. As in Kafka, a setting selects it
        by its name, or by the protocol with the same name. Raises ConfigError."""
        by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
        if self._is_set(by_name) and self._is_set(by_protocol):
            raise ConfigError(f"{by_name} and {by_protocol} exclude each other. Remove one.")
        key = by_name if self._is_set(by_name) else by_protocol
        name = self._text(key).upper()
        known = [listener.name for listener in self.advertised]
        if name not in known:
            raise ConfigError(
                f"{key}={self._text(key)}: other brokers could not connect:"
                f" {name or 'an empty name'} is not in advertised.listeners."
                f" Set {by_name} to one of {', '.join(known)}."
            )
        return name
