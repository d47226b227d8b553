"""The offsets that a filter of a query leaves, without Spark: exactly those that match."""

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from barnabas.spark.filters import narrow
from barnabas.spark.planner import TaskRange


@pytest.mark.parametrize(
    ("kind", "start", "end"),
    [
        (EqualTo, 5, 6),
        (GreaterThan, 6, 9),
        (GreaterThanOrEqual, 5, 9),
        (LessThan, 2, 5),
        (LessThanOrEqual, 2, 6),
    ],
)
def test_a_filter_on_the_offset_leaves_the_offsets_that_match(kind, start, end):
    narrowed, left = narrow([kind(("offset",), 5)])
    assert left == []
    assert narrowed.apply([TaskRange("t", 0, 2, 9)], None) == [TaskRange("t", 0, start, end)]
