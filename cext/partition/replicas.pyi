from typing import NamedTuple

class ReplicaState(NamedTuple):
    broker_id: int
    log_end_offset: int  # -1: no fetch in this leader epoch
    log_start_offset: int  # -1: unknown
    caught_up_ms_ago: int | None  # None: not caught up in this leader epoch
    in_isr: bool
