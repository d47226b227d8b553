"""A record set as columns, whatever its magic and codecs: cext.record.columns with the batches
opened.

Plain, lz4 and snappy batches never become Python objects; those of gzip and zstd are inflated here
and walked the same way. `partial_tail`: see decode_batches.
"""

from barnabas.cext.record.columns import Columns, ColumnsBuilder
from barnabas.wire import batches
from barnabas.wire.compression import Buffer

PACKED = "packed"  # ColumnsBuilder.stop


def read_columns(
    data: Buffer, *, size_max: int, offset_min: int = 0, partial_tail: bool = False
) -> Columns:
    """The records of a record set from offset_min on; control batches hold none.

    size_max: the most bytes that the body of one batch may inflate to. Raises CorruptRecords, and
    OverflowError when a column would pass 2 GiB.
    """
    builder = ColumnsBuilder(body_bytes_max=size_max)
    add_columns(builder, data, offset_min=offset_min, partial_tail=partial_tail)
    return builder.finish()


def add_columns(
    builder: ColumnsBuilder, data: Buffer, *, offset_min: int = 0, partial_tail: bool = False
) -> None:
    """Like `columns_of`, into columns that hold earlier records."""
    view = memoryview(data).cast("B")
    at = builder.add_batches(view, offset_min=offset_min)
    while builder.stop == PACKED:
        at += open_batch(builder, view, at)
        at = builder.add_batches(view, at, offset_min=offset_min)
    if at < len(view) and not partial_tail:
        batches.batch_at(view, at, builder.body_bytes_max)  # says what is cut off
        raise AssertionError(f"the walk ended at byte {at} of {len(view)}")


def open_batch(builder: ColumnsBuilder, view: memoryview, at: int) -> int:
    """Adds a batch that the walk stopped at; its size. Raises as above."""
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
