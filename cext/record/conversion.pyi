from typing_extensions import Buffer

class CannotConvert(ValueError):
    code: int

def up_convert(
    data: Buffer,
    *,
    wrapper: Buffer | None = None,
    bytes_max: int = ...,
    append_time: bool = False,
) -> bytes: ...
def down_convert(
    batch: Buffer, *, magic: int, first_offset: int = 0, wrapped: bool = False
) -> bytes: ...
