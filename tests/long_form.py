"""The one switch between the short and the long form of random, exhaustive and killing tests.

CI and `make test` run the short form. `make long` (`pytest --long`, or BARNABAS_LONG=1) runs the
long form: more seeds, more random examples, every version, a kill before every call.
"""

import os
from typing import TypeVar

T = TypeVar("T")

LONG = os.environ.get("BARNABAS_LONG", "") not in ("", "0")


def pick(*, short: T, long: T) -> T:
    """`short`, or `long` in the long form."""
    return long if LONG else short
