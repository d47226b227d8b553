from typing import final

from barnabas.cext.memory.job_queue import JobQueue
from barnabas.cext.network.handler import LaneHandle

@final
class JoinQueue(JobQueue):
    def next(self, timeout_ms: int = -1) -> JoinJob | None: ...

@final
class JoinLane(LaneHandle):
    def __init__(self, queue: JoinQueue) -> None: ...

@final
class JoinJob:
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    id_required: bool
    can_skip_assignment: bool
    def __call__(self, result: object) -> None: ...
