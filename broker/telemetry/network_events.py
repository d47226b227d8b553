"""What peers did wrong, as log lines: at most one a peer and second, however many frames it sends.

The network threads put events into a bounded ring; a repeating task writes them down.
"""

import logging

from barnabas.cext.network.reactor import Reactor

log = logging.getLogger("barnabas.network")
PERIOD_MS = 1000


def write_events(reactor: Reactor) -> int:
    """Logs what happened since the last call; how many lines."""
    events = reactor.events()
    for event in events:
        more = f", and {event.suppressed} more like it" if event.suppressed else ""
        log.warning(
            "connection of %s:%d on %s closed: %s (%d)%s",
            event.host,
            event.port,
            event.listener,
            event.reason,
            event.detail,
            more,
        )
    return len(events)
