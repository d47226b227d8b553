"""Logs why the network threads closed connections: at most one line for each peer and second.

The network threads put events into a bounded ring; a repeating task writes them down.
"""

import logging

from barnabas.cext.network.reactor import NetworkEvent, Reactor

log = logging.getLogger("barnabas.network")
PERIOD_MS = 1000

# Reasons whose name says too little. %d is the event's number.
EXPLANATIONS = {
    "slow-request": "the client sent less than 64 KiB in a second of a request of which the broker"
    " holds %d bytes, while other requests waited for memory (queued.max.request.bytes)",
}


def write_events(reactor: Reactor) -> int:
    """Logs what happened since the last call; how many lines."""
    events = reactor.events()
    for event in events:
        more = f", and {event.suppressed} more like it" if event.suppressed else ""
        log.warning(
            "connection of %s:%d on %s closed: %s%s",
            event.host,
            event.port,
            event.listener,
            _why(event),
            more,
        )
    return len(events)


def _why(event: NetworkEvent) -> str:
    if event.reason in EXPLANATIONS:
        return f"{event.reason}: {EXPLANATIONS[event.reason] % event.detail}"
    return f"{event.reason} ({event.detail})"
