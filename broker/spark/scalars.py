"""Makes Arrow scalars without pandas.

pyarrow's own `scalar` and `array` check whether their argument is a pandas object, and import
pandas for that: half a second of CPU at each start of a Spark worker."""

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

FORMATS = {32: "=i", 64: "=q"}  # by the bits of the type


def scalar(value: int | str | None, kind: "pyarrow.DataType") -> "pyarrow.Scalar":
    """Returns a scalar of type `kind`. `value`: None, the text of a pa.string(), or the integer
    with which Arrow stores an integer, a date or a time."""
    import pyarrow as pa

    if value is None:
        return pa.nulls(1, kind)[0]
    if isinstance(value, str):
        text = value.encode()
        parts = [struct.pack("=2i", 0, len(text)), text]
    else:
        parts = [struct.pack(FORMATS[kind.bit_width], value)]
    return pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, parts)])[0]
