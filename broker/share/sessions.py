"""Share sessions: which partitions a member fetches from, so that requests name changes alone.

A session belongs to a member of a group. It begins with a ShareFetch of epoch 0, each request after
that (ShareFetch or ShareAcknowledge) says the next epoch, and -1 ends it. What a member has at hand
is released by whoever ends the session. Limit: `group.share.max.share.sessions`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from barnabas.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from barnabas.value_class import NamedTuple, field, value_class

FIRST_EPOCH = 0
LAST_EPOCH = -1
EPOCH_MAX = 2**31 - 1

Place = tuple[bytes, int]  # topic id, partition


class Asked(NamedTuple):
    """What a request is about: the partitions to fetch from, in the order of their turns."""

    places: Sequence[Place]
    is_first: bool = False
    is_last: bool = False


@value_class(frozen=False)
class _Session:
    epoch: int
    places: dict[Place, None] = field(default_factory=dict)


class ShareSessions:
    """All sessions of one broker."""

    def __init__(self, sessions_max: Callable[[], int]) -> None:
        self._sessions_max = sessions_max
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, str], _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        wanted: Iterable[Place],
        forgotten: Iterable[Place],
        acknowledges: bool,
    ) -> Asked:
        """A ShareFetch; `wanted` are those that it names beside its acknowledgements."""
        key = group_id, member_id
        with self._lock:
            if epoch == LAST_EPOCH:
                self._session(key)
                return Asked((), is_last=True)
            if epoch == FIRST_EPOCH:
                if acknowledges:
                    raise InvalidRequest("the first fetch of a session acknowledges nothing")
                self._begin(key, wanted)
                return Asked(list(self._sessions[key].places), is_first=True)
            session = self._next(key, epoch)
            for place in forgotten:
                session.places.pop(place, None)
            for place in wanted:
                session.places.setdefault(place)
            return Asked(_turned(list(session.places), epoch))

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> bool:
        """A ShareAcknowledge; whether it is the session's last request."""
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
        """There need not be one."""
        with self._lock:
            self._sessions.pop((group_id, member_id), None)

    def end_group(self, group_id: str) -> list[str]:
        """The members that had one."""
        with self._lock:
            members = [key[1] for key in self._sessions if key[0] == group_id]
            for member_id in members:
                del self._sessions[group_id, member_id]
            return members

    def _begin(self, key: tuple[str, str], wanted: Iterable[Place]) -> None:
        self._sessions.pop(key, None)
        if len(self._sessions) >= self._sessions_max():
            raise ShareSessionLimitReached()
        self._sessions[key] = _Session(FIRST_EPOCH + 1, dict.fromkeys(wanted))

    def _session(self, key: tuple[str, str]) -> _Session:
        found = self._sessions.get(key)
        if found is None:
            raise ShareSessionNotFound()
        return found

    def _next(self, key: tuple[str, str], epoch: int) -> _Session:
        found = self._session(key)
        if found.epoch != epoch:
            raise InvalidShareSessionEpoch()
        found.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return found


def _turned(places: list[Place], turn: int) -> list[Place]:
    """Another one first each time, so that a full answer leaves none out for ever."""
    if not places:
        return places
    by = turn % len(places)
    return places[by:] + places[:by]
