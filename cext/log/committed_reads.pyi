from barnabas.cext.log.log_handle import LogHandle

def read_committed(
    handle: LogHandle,
    offset: int,
    size_max: int,
    *,
    limit_offset: int,
    whole_first: bool = True,
) -> tuple[bytes, list[tuple[int, int]]]: ...
