from pathlib import Path

from barnabas.cext.log.log_handle import LogHandle

def replace_with_future(
    current: LogHandle, future: LogHandle, directory: str | Path, bytes_max: int
) -> bool: ...
