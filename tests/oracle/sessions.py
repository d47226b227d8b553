"""A plain model of incremental fetch sessions (KIP-227), written from the rules, one shard.

The caller passes the responses of partitions: {(topic, partition): (error, high watermark, log
start, record bytes, unknown)}.
"""

from dataclasses import dataclass, field

Place = tuple[bytes, int]
Answer = tuple[int, int, int, int, bool]
Told = tuple[bytes, int, int]

EVICTION_MS = 120_000
EPOCH_LAST = 2**31 - 1
NOT_FOUND, BAD_EPOCH, TOPIC_ID_ERROR = 70, 71, 106


@dataclass
class Session:
    by_id: bool
    follower: bool
    created_ms: int
    used_ms: int
    epoch: int = 1
    # in the order of responses: place -> [offset, last sent high watermark, last sent log start]
    parts: dict[Place, list[int]] = field(default_factory=dict)
    size_at_touch: int = 0
    evictable_by_all: bool = False

    def touch(self, now_ms: int) -> None:
        self.used_ms = now_ms
        self.size_at_touch = len(self.parts)
        self.evictable_by_all = now_ms - self.created_ms > EVICTION_MS

    def worth(self, session_id: int) -> tuple[bool, int, int]:
        return self.follower, self.size_at_touch, session_id


class Sessions:
    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sessions: dict[int, Session] = {}  # in the order of last use

    def exchange(
        self,
        version: int,
        session_id: int,
        epoch: int,
        wanted: list[Told],
        forgotten: list[Place],
        answers: dict[Place, Answer],
        now_ms: int,
        follower: bool,
        new_id: int,
    ) -> tuple[int, int, list[Told], list[Told]]:
        """(error, session id, fetched, sent). new_id: the id for a new session."""
        if version < 7:
            session_id, epoch = 0, -1
        asked = {(topic, index): offset for topic, index, offset in wanted}
        if epoch in (0, -1):
            self.sessions.pop(session_id, None)
            if epoch == 0:
                made = self.create(version, asked, answers, now_ms, follower, new_id)
                return 0, new_id if made else 0, listed(asked), listed(asked)
            return 0, 0, listed(asked), listed(asked)
        session = self.sessions.get(session_id)
        if session is None:
            return NOT_FOUND, 0, [], []
        if session.epoch != epoch:
            return BAD_EPOCH, 0, [], []
        if session.by_id != (version >= 13):
            return TOPIC_ID_ERROR, 0, [], []
        for place, offset in asked.items():
            session.parts.setdefault(place, [0, -1, -1])[0] = offset
        for place in forgotten:
            session.parts.pop(place, None)
        if not session.parts:
            del self.sessions[session_id]
            return 0, 0, listed(asked), listed(asked)
        session.epoch = 1 if epoch == EPOCH_LAST else epoch + 1
        self.sessions[session_id] = self.sessions.pop(session_id)
        session.touch(now_ms)
        fetched = listed({place: known[0] for place, known in session.parts.items()})
        return 0, session_id, fetched, self.changes(session, fetched, answers)

    def changes(
        self, session: Session, fetched: list[Told], answers: dict[Place, Answer]
    ) -> list[Told]:
        told = []
        for topic, index, offset in sorted(fetched, key=lambda t: answers[t[:2]][4]):
            known = session.parts[topic, index]
            error, high_watermark, log_start, record_bytes, _ = answers[topic, index]
            if record_bytes or error or known[1:] != [high_watermark, log_start]:
                told.append((topic, index, offset))
            known[1:] = [-1 if error else high_watermark, log_start]
            if record_bytes:
                session.parts[topic, index] = session.parts.pop((topic, index))
        return [t for t in fetched if t in told]

    def create(
        self,
        version: int,
        asked: dict[Place, int],
        answers: dict[Place, Answer],
        now_ms: int,
        follower: bool,
        new_id: int,
    ) -> bool:
        made = Session(version >= 13, follower, now_ms, now_ms)
        for place in sorted(asked, key=lambda place: answers[place][4]):
            made.parts[place] = [asked[place], answers[place][1], answers[place][2]]
        made.touch(now_ms)
        if len(self.sessions) >= self.slots:
            victim = self.victim(made, now_ms)
            if victim is None:
                return False
            del self.sessions[victim]
        self.sessions[new_id] = made
        return True

    def victim(self, proposed: Session, now_ms: int) -> int | None:
        if not self.sessions:
            return None
        oldest = next(iter(self.sessions))
        if now_ms - self.sessions[oldest].used_ms > EVICTION_MS:
            return oldest
        evictable = [
            (session.worth(session_id), session_id)
            for session_id, session in self.sessions.items()
            if session.evictable_by_all or (proposed.follower and not session.follower)
        ]
        if not evictable or min(evictable)[0] >= proposed.worth(0):
            return None
        return min(evictable)[1]


def listed(parts: dict[Place, int]) -> list[Told]:
    return [(topic, index, offset) for (topic, index), offset in parts.items()]
