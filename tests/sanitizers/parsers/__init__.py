"""What bytes from outside reach: requests, record batches, files of a log directory, logins.

A parser takes any bytes. The product may refuse them with its own error; whatever else it raises is
a defect, as is a broken assertion of the parser. `make fuzz` looks for such bytes with coverage,
one parser at a time; test_parsers.py gives each parser its seeds, cut and with one changed byte,
test_fresh.py random changes of them, which are others in each run.

A module of this package is imported when one of its parsers is asked for, because the fuzzer's
speed depends on how much code is loaded. It has PARSERS, by name, in the order of MODULES.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

Parse = Callable[[bytes], object]
Make = Callable[[Path, contextlib.ExitStack], Parse]

# The bytes are read by compiled code; those of the network come first.
NATIVE = {
    "headers": ("request_header", "message"),
    "handlers": ("produce_request", "fetch_request", "fetch_answer"),
    "records": (
        "record_batches", "sealed_batch", "message_set", "compressed", "up_conversion",
        "down_conversion", "messages07", "wrapped_message07",
    ),
    "segments": ("index", "segment_file", "recovery", "stored_fetch"),
    "listeners": ("conversation", "coordinator_request", "tls_conversation"),
}  # fmt: skip
PYTHON = {
    "logins": ("login", "token", "key_set"),
    "old_clients": ("request07", "addresses07"),
    "files": (
        "checkpoint", "properties", "key_store", "certificate_name", "metadata_row",
        "plugin_answer", "spark_checkpoint", "spark_sink_log",
    ),
    "logs": (
        "internal_record", "consumer_protocol", "kraft_record", "kraft_log", "partition_files",
    ),
}  # fmt: skip
MODULES = NATIVE | PYTHON
GOAL_NATIVE, GOAL_PYTHON = 10_000_000, 500_000  # runs of a parser before a release
NAMES = tuple(name for names in MODULES.values() for name in names)


class Parser(NamedTuple):
    """`make(folder, stack)` returns a function that takes the bytes; what it opened is closed with
    `stack`."""

    make: Make
    seeds: Callable[[], Iterable[bytes]]


def parser(name: str) -> Parser:
    """Returns a parser by its name. Raises StopIteration for an unknown one."""
    module = next(module for module, names in MODULES.items() if name in names)
    found: Parser = importlib.import_module(f"{__name__}.{module}").PARSERS[name]
    return found


def is_native(name: str) -> bool:
    return any(name in names for names in NATIVE.values())


def of(parse: Parse) -> Make:
    """The parser needs neither a folder nor anything open."""
    return lambda _folder, _stack: parse
