"""The TLS contexts of the listeners, made from settings and files, and made again when they change.

A new keystore may replace the present one when its certificate has the same subject and all of its
alternative names, as in Kafka (SslFactory.CertificateEntries); ssl.allow.dn.changes and
ssl.allow.san.changes lift the two checks. Unusable settings and files change nothing: an altered
setting is refused, and a changed file is logged. Connections keep their certificate; a session from
before a change cannot be resumed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from barnabas.config import ConfigError
from barnabas.config.listeners import Listener
from barnabas.config.tls import (
    MISSING,
    TlsSettings,
    is_built_in,
    listener_problems,
    suites_asked,
    tls_setting,
)
from barnabas.tls.stores import read_identity, read_trusted

if TYPE_CHECKING:
    from barnabas.cext.network.tls import TlsContext

log = logging.getLogger("barnabas.tls")
AUTHENTICATION = {"none": 0, "requested": 1, "required": 2}
LOCATIONS = ("ssl.keystore.location", "ssl.truststore.location")
Stamps = tuple[tuple[str, int, int, int], ...]


class _Served:
    """A listener, its context, and the files that it was made from."""

    def __init__(self, listener: Listener, context: TlsContext, stamps: Stamps) -> None:
        self.listener, self.context, self.stamps = listener, context, stamps


class ListenersTls:
    """The TLS of one broker's listeners. `values` returns the texts of all settings in force."""

    def __init__(self, values: Callable[[], Mapping[str, str]]) -> None:
        self._values = values
        self._lock = threading.Lock()  # of changes: an altered setting, a changed file
        self._served: dict[str, _Served] = {}

    def add(self, listener: Listener) -> TlsContext:
        """The context of a new listener. Raises ConfigError."""
        with self._lock:
            made = _make(self._values(), listener)
            self._served[listener.name] = made
        return made.context

    def forget(self, name: str) -> None:
        """Follows the settings and files of a listener no more: it is closed."""
        with self._lock:
            self._served.pop(name, None)

    def problems(self, listener: Listener, values: Mapping[str, str]) -> list[str]:
        """Returns why a new listener cannot be added; changes nothing."""
        try:
            _make(values, listener)
        except ConfigError as error:
            return error.problems
        return []

    def check(
        self, values: Mapping[str, str], names: frozenset[str], bound: Collection[str]
    ) -> list[str]:
        """Why the altered settings `names` cannot be used, for listeners that serve and go on:
        those that will be `bound`."""
        problems = []
        for served in self._touched(names):
            if served.listener.name not in bound:
                continue
            try:
                _check_change(served, _make(values, served.listener), values)
            except ConfigError as error:
                problems += error.problems
        return problems

    def changed(self, names: frozenset[str]) -> None:
        """Serves new connections by the altered settings. Raises ConfigError."""
        for served in self._touched(names):
            self._renew(served)

    def _touched(self, names: frozenset[str]) -> list[_Served]:
        found = [setting for name in names if (setting := tls_setting(name))]
        if not found:
            return []
        return [
            served
            for served in list(self._served.values())
            if any(s.listener in ("", served.listener.name.lower()) for s in found)
        ]

    def _renew(self, served: _Served) -> None:
        with self._lock:
            values = self._values()
            made = _make(values, served.listener)
            _check_change(served, made, values)
            served.context.replace(made.context)
            served.stamps = made.stamps
        log.info("Listener %s: new connections use the new certificates.", served.listener.name)

    def look_at_files(self) -> None:
        """Serves new connections from files that have changed since they were read. A file that
        cannot be used is logged once, and the old certificates stay."""
        for served in list(self._served.values()):
            stamps = _stamps(TlsSettings(self._values(), served.listener))
            if stamps == served.stamps:
                continue
            try:
                self._renew(served)
            except ConfigError as error:
                served.stamps = stamps
                log.error(
                    "Listener %s keeps its certificates: a changed file cannot be used: %s",
                    served.listener.name,
                    " ".join(error.problems),
                )


def _stamps(settings: TlsSettings) -> Stamps:
    found = []
    for base in LOCATIONS:
        path = settings.text(base)
        if path is not None:
            try:
                status = os.stat(path)
            except OSError:
                found.append((path, 0, 0, 0))
            else:
                found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _make(values: Mapping[str, str], listener: Listener) -> _Served:
    """Reads the settings and files of a listener. Raises ConfigError."""
    if not is_built_in():
        raise ConfigError(f"listeners={listener}: {MISSING}.")
    from barnabas.cext.network.tls import TlsContext, TlsError

    problems = listener_problems(values, listener)
    if problems:
        raise ConfigError(problems)
    settings = TlsSettings(values, listener)
    stamps = _stamps(settings)  # before the files are read: a later change is seen
    versions, suites = _suites(settings)
    identity = read_identity(settings)
    try:
        context = TlsContext(
            chain=identity.chain,
            key=identity.key,
            trusted=read_trusted(settings) if settings.client_auth != "none" else (),
            client_auth=AUTHENTICATION[settings.client_auth],
            versions=versions,
            suites=suites,
            name=listener.name.encode(),
        )
    except TlsError as error:
        raise ConfigError(f"TLS of the listener {listener.name}: {error}.") from None
    return _Served(listener, context, stamps)


def _suites(settings: TlsSettings) -> tuple[list[str], tuple[str, ...]]:
    """The versions and, by OpenSSL's names, the cipher suites; a version without one of the suites
    is left out. Raises ConfigError for a name that this library does not have."""
    from barnabas.cext.network.tls import library, openssl_name

    versions = list(settings.names("ssl.enabled.protocols"))
    asked = suites_asked(settings)
    if not asked:
        return versions, ()
    suites = []
    for name in asked:
        # Java's names are those of IANA; a few old ones begin with SSL_.
        known = openssl_name("TLS_" + name[4:] if name.startswith("SSL_") else name)
        if known is None:
            raise ConfigError(
                settings.problem(
                    "ssl.cipher.suites",
                    f"{name} is not among the cipher suites of {library()}. Correct the name, or"
                    " leave it out.",
                )
            )
        suites.append(known)
    has = {"TLSv1.3" if name.startswith("TLS_") else "TLSv1.2" for name in suites}
    if not has & set(versions):
        raise ConfigError(
            settings.problem("ssl.cipher.suites", f"has no suite of {', '.join(versions)}.")
        )
    return [version for version in versions if version in has], tuple(suites)


def _check_change(old: _Served, new: _Served, values: Mapping[str, str]) -> None:
    """Raises ConfigError when the new certificate may not replace the old one."""
    from barnabas.cext.network.tls import alternative_names, subject

    settings = TlsSettings(values, old.listener)
    before, after = old.context.chain[0], new.context.chain[0]
    if subject(before) != subject(after) and not settings.boolean("ssl.allow.dn.changes"):
        raise ConfigError(
            settings.problem(
                "ssl.keystore.location",
                "the new certificate has another subject (distinguished name). Set"
                " ssl.allow.dn.changes=true to allow this.",
            )
        )
    lost = set(alternative_names(before)) - set(alternative_names(after))
    if lost and not settings.boolean("ssl.allow.san.changes"):
        raise ConfigError(
            settings.problem(
                "ssl.keystore.location",
                f"the new certificate lacks {len(lost)} alternative names of the old one. Set"
                " ssl.allow.san.changes=true to allow this.",
            )
        )
