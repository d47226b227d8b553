from collections.abc import Iterator
from typing import Any

from barnabas.cext.record.columns import Columns

def arrow_stream(batches: Iterator[Columns]) -> Any: ...
