"""Reads record sets of any magic and codec as columns.

cext.record.columns reads plain, lz4 and snappy batches without making Python objects of records.
This file decompresses gzip and zstd batches, which cext then reads in the same way. `partial_tail`:
see decode_batches.
"""

from barnabas.cext.record.columns import Columns, ColumnsBuilder
from barnabas.wire import batches
from barnabas.wire.compression import Buffer

PACKED = "packed"  # ColumnsBuilder.stop


def read_columns(
    data: Buffer, *, size_max: int, offset_min: int = 0, partial_tail: bool = False
) -> Columns:
    """Returns the records of a record set from offset_min on, as columns; control batches have
    none.

    size_max: the largest number of bytes that the body of one batch may decompress to. Raises
    CorruptRecords, and OverflowError when a column would exceed 2 GiB.
    """
    builder = ColumnsBuilder(body_bytes_max=size_max)
    add_columns(builder, data, offset_min=offset_min, partial_tail=partial_tail)
    return builder.finish()


def add_columns(
    builder: ColumnsBuilder, data: Buffer, *, offset_min: int = 0, partial_tail: bool = False
) -> None:
    """Adds the records of a record set to columns, which may have earlier records. Arguments and
    errors are those of `read_columns`."""
    view = memoryview(data).cast("B")
    at = builder.add_batches(view, offset_min=offset_min)
    while builder.stop == PACKED:
        at += open_batch(builder, view, at)
        at = builder.add_batches(view, at, offset_min=offset_min)
    if at < len(view) and not partial_tail:
        batches.batch_at(view, at, builder.body_bytes_max)  # raises with the place of the damage
        raise AssertionError(f"the walk ended at byte {at} of {len(view)}")


def open_batch(builder: ColumnsBuilder, view: memoryview, at: int) -> int:
    """Adds the batch at which the builder stopped, and returns its size in bytes. Raises as
    `read_columns`."""
    batch = batches.batch_at(view, at, builder.body_bytes_max)
    append_time = batch.max_timestamp if batch.timestamp_type == batches.APPEND_TIME else None
    body = batch.body()
    if batch.magic == 2:
        builder.add_body(
            body,
            count=batch.count,
            base_offset=batch.base_offset,
            base_timestamp=batch.base_timestamp,
            append_time=append_time,
        )
    else:
        builder.add_wrapped(
            body, magic=batch.magic, offset=batch.last_offset, append_time=append_time
        )
    return batch.size_bytes
