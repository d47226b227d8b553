"""Valid batches after damage are counted wherever they are in the file, and nothing else is."""

import random

import pytest
from oracle.log_builder import batch

from barnabas.cext.log import cut_files


def stamped(content: bytes, base_offset: int) -> bytes:
    return base_offset.to_bytes(8, "big") + content[8:]


def written(path, sizes, noise):
    """A segment of one damaged batch, then `noise`, then a batch of two records for each size."""
    damaged = bytearray(stamped(batch(b"first"), 0))
    damaged[-1] ^= 1
    content, offset = bytes(damaged) + noise, 1
    for size in sizes:
        content += stamped(batch(b"a" * size, b"b"), offset)
        offset += 2
    (path / f"{0:020d}.log").write_bytes(content)
    return content, offset


@pytest.mark.parametrize("seed", range(6))
def test_batches_are_found_across_the_pieces_of_a_file(tmp_path, seed):
    chance = random.Random(seed)
    sizes = [chance.choice((1, 100, 4096, 70_000, 1 << 20, 1_500_000)) for _ in range(12)]
    noise = chance.randbytes(chance.choice((0, 1, 61, 5000))) + b"\x02" * chance.randrange(100)
    content, end = written(tmp_path, sizes, noise)
    cut = cut_files.set_aside_tail(str(tmp_path), 0, 0, 0)
    assert (cut.batches, cut.records, cut.end_offset) == (12, 24, end)
    assert open(cut.path, "rb").read() == content


def test_batches_whose_offsets_do_not_ascend_are_old_data(tmp_path):
    content, _ = written(tmp_path, [10, 10], b"")
    (tmp_path / f"{0:020d}.log").write_bytes(content)
    cut = cut_files.set_aside_tail(str(tmp_path), 0, 0, 1000)
    assert (cut.batches, cut.end_offset) == (0, -1)


def test_a_second_try_uses_the_file_of_the_first(tmp_path):
    written(tmp_path, [10, 10], b"")
    first = cut_files.set_aside_tail(str(tmp_path), 0, 0, 0)
    assert cut_files.set_aside_tail(str(tmp_path), 0, 0, 0) == first
    assert [path.name for path in tmp_path.glob("*.cut")] == [f"{0:020d}.cut"]
    assert not list(tmp_path.glob("*.tmp"))


def test_other_bytes_at_the_same_offset_get_a_name_of_their_own(tmp_path):
    written(tmp_path, [10, 10], b"")
    first = cut_files.set_aside_tail(str(tmp_path), 0, 0, 0)
    written(tmp_path, [10, 11], b"")
    second = cut_files.set_aside_tail(str(tmp_path), 0, 0, 0)
    assert (first.path, second.path) == (
        str(tmp_path / f"{0:020d}.cut"),
        str(tmp_path / f"{0:020d}-1.cut"),
    )


def test_the_empty_batch_is_sound(tmp_path):
    content = stamped(cut_files.empty_batch(41), 0)
    (tmp_path / f"{0:020d}.log").write_bytes(content)
    cut = cut_files.set_aside_tail(str(tmp_path), 0, 0, 0)
    assert (cut.batches, cut.records, cut.end_offset) == (1, 0, 42)
