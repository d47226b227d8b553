"""Share sessions: the partitions that a member fetches from, so that requests name only changes.

A session belongs to a member of a group. It begins with a ShareFetch of epoch 0, each request after
that (ShareFetch or ShareAcknowledge) carries the next epoch, and -1 ends the session. The end of
the connection on which the session began ends it too. The code that ends a session releases the
member's acquired records. The code that acquires records checks `is_over` under the partition's
lock, so an ended session receives no more records. Limit: `group.share.max.share.sessions`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

FIRST_EPOCH = 0
LAST_EPOCH = -1
EPOCH_MAX = 2**31 - 1

Place = tuple[bytes, int]  # (topic id, partition)
Member = tuple[str, str]  # (group id, member id)


@dataclass(slots=True)
class Session:
    """One share session. `connection_id`: the connection on which it began."""

    epoch: int
    connection_id: int
    places: dict[Place, None] = field(default_factory=dict)
    is_over: bool = False


class Asked(NamedTuple):
    """The session's part of a request: the partitions to fetch from, in the order of their
    turns."""

    session: Session
    places: Sequence[Place]
    is_first: bool = False
    is_last: bool = False


class ShareSessions:
    """All share sessions of one broker (Kafka: ShareSessionCache)."""

    def __init__(self, sessions_max: Callable[[], int]) -> None:
        self._sessions_max = sessions_max
        self._lock = threading.Lock()
        self._sessions: dict[Member, Session] = {}
        self._by_connection: dict[int, set[Member]] = {}
        self.evicted_count = 0  # sessions that ended with their connection, since the start

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        """Returns whether a member of the group has a session."""
        with self._lock:
            return any(key[0] == group_id for key in self._sessions)

    def place_count(self) -> int:
        """Returns the number of partitions in all sessions."""
        with self._lock:
            return sum(len(row.places) for row in self._sessions.values())

    def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        wanted: Iterable[Place],
        forgotten: Iterable[Place],
        acknowledges: bool,
        connection_id: int = 0,
    ) -> Asked:
        """Handles the session's part of a ShareFetch. `wanted`: the partitions that the request
        names beside its acknowledgements. `connection_id` 0: the session ignores the end of the
        connection. Raises ShareSessionNotFound, InvalidShareSessionEpoch, ShareSessionLimitReached,
        and InvalidRequest for a first fetch that acknowledges records."""
        key = group_id, member_id
        with self._lock:
            if epoch == LAST_EPOCH:
                return Asked(self._session(key), (), is_last=True)
            if epoch == FIRST_EPOCH:
                if acknowledges:
                    raise InvalidRequest(
                        "the first fetch of a session must not acknowledge records"
                    )
                session = self._begin(key, wanted, connection_id)
                return Asked(session, list(session.places), is_first=True)
            session = self._next(key, epoch)
            for place in forgotten:
                session.places.pop(place, None)
            for place in wanted:
                session.places.setdefault(place)
            return Asked(session, _turned(list(session.places), epoch))

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> bool:
        """Handles the session's part of a ShareAcknowledge. Returns whether it is the session's
        last request. Raises InvalidShareSessionEpoch, ShareSessionNotFound."""
        key = group_id, member_id
        with self._lock:
            if epoch == FIRST_EPOCH:
                raise InvalidShareSessionEpoch()
            if epoch == LAST_EPOCH:
                self._session(key)
                return True
            self._next(key, epoch)
            return False

    def end(self, group_id: str, member_id: str) -> None:
        """Ends the session of a member, if it has one."""
        with self._lock:
            self._end((group_id, member_id))

    def end_group(self, group_id: str) -> list[str]:
        """Ends the sessions of a group and returns the members that had one."""
        with self._lock:
            keys = [key for key in self._sessions if key[0] == group_id]
            for key in keys:
                self._end(key)
            return [key[1] for key in keys]

    def connection_closed(self, connection_id: int) -> list[tuple[Member, list[Place]]]:
        """Ends the sessions of a closed connection and returns them with their partitions."""
        with self._lock:
            found = []
            for key in list(self._by_connection.get(connection_id, ())):
                session = self._end(key)
                assert session is not None, key
                found.append((key, list(session.places)))
            self.evicted_count += len(found)
            return found

    def _begin(self, key: Member, wanted: Iterable[Place], connection_id: int) -> Session:
        self._end(key)
        if len(self._sessions) >= self._sessions_max():
            raise ShareSessionLimitReached()
        made = Session(FIRST_EPOCH + 1, connection_id, dict.fromkeys(wanted))
        self._sessions[key] = made
        if connection_id:
            self._by_connection.setdefault(connection_id, set()).add(key)
        return made

    def _end(self, key: Member) -> Session | None:
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        session.is_over = True
        keys = self._by_connection.get(session.connection_id, set())
        keys.discard(key)
        if not keys:
            self._by_connection.pop(session.connection_id, None)
        return session

    def _session(self, key: Member) -> Session:
        found = self._sessions.get(key)
        if found is None:
            raise ShareSessionNotFound()
        return found

    def _next(self, key: Member, epoch: int) -> Session:
        found = self._session(key)
        if found.epoch != epoch:
            raise InvalidShareSessionEpoch()
        found.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return found


def _turned(places: list[Place], turn: int) -> list[Place]:
    """Puts another partition first each time, so that a full response delays none of them
    forever."""
    if not places:
        return places
    by = turn % len(places)
    return places[by:] + places[:by]
