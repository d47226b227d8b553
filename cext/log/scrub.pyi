from barnabas.cext.log.log_handle import LogHandle

def scrub_segment(
    handle: LogHandle, base_offset: int, position: int, bytes_max: int
) -> tuple[int, bool]: ...
