"""Denies everything to the principals of a file, as soon as the plugin sees a change of the file.

    authorizer.class.name=blocked-principals
    plugin.blocked-principals.file=/etc/barnabas/blocked

The file has a principal in each line, as in User:alice; the plugin ignores empty lines and lines
that begin with #. For all other principals the access rules decide. The plugin reads the file every
`look.ms`; after a change the broker discards its cached answers at once, so that open connections
are denied too. Replace the file by a rename: from a file that is half written the plugin blocks
only a part. While it cannot read the file, it continues to block the same principals. super.users
are never blocked.
"""

import logging
import threading
from pathlib import Path

from barnabas.hooks import Option, Options, Services, hookimpl

log = logging.getLogger("barnabas.plugins.blocked_principals")

FILE_BYTES_MAX = 1 << 20


class BlockedPrincipals:
    """Denies everything to the principals of a file."""

    OPTIONS = {
        "file": Option("text", "the file with a principal in each line"),
        "look.ms": Option("integer", "the time between two looks at the file", 1000, least=10),
    }

    def __init__(self, options: Options) -> None:
        self._path = Path(options["file"])
        self._look_s = options["look.ms"] / 1000
        self._blocked = _principals(self._path)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @hookimpl
    def authorize(self, principal: str) -> bool | None:
        return False if principal in self._blocked else None

    @hookimpl
    def broker_started(self, services: Services) -> None:
        self._thread = threading.Thread(
            target=self._follow, args=(services,), name="blocked-principals", daemon=True
        )
        self._thread.start()

    @hookimpl
    def broker_stopping(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self, services: Services) -> None:
        while not self._stop.wait(self._look_s):
            try:
                found = _principals(self._path)
            except (OSError, ValueError) as error:
                log.error(
                    "%s: the principals that were blocked stay blocked: %s", self._path, error
                )
                continue
            if found != self._blocked:
                self._blocked = found
                services.rules_changed()
                log.info("%s: %d principals are blocked", self._path, len(found))


def _principals(path: Path) -> frozenset[str]:
    """Returns the principals of a file. Raises OSError, and ValueError for a line that is not a
    principal."""
    with path.open(encoding="utf-8") as file:
        text = file.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        raise ValueError(f"the file has more than {FILE_BYTES_MAX} characters")
    lines = [line.strip() for line in text.splitlines()]
    found = frozenset(line for line in lines if line and not line.startswith("#"))
    for line in found:
        kind, colon, name = line.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{line[:60]!r} is not a principal: write TYPE:NAME, as in User:alice")
    return found
