"""The output of the commands: data on standard output, everything else on standard error.

On a terminal, tables have lines and colour (by rich, which is imported only then); in a file or a
pipe they are columns of plain text. With --json, data is JSON: bytes in UTF-8 are text, other bytes
are {"base64": ...}.
"""

import base64
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

PROGRESS_AFTER_S = 1.0
PROGRESS_EVERY_S = 0.2


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fail(text: str) -> int:
    """Prints an error in one line, with the remedy; returns the exit status 1."""
    say(f"barnabas: {' '.join(text.split())}")
    return 1


def count_of(count: int, noun: str) -> str:
    """Returns a number with its noun: `1 record`, `2000 records`."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{ending}"


def did(as_json: bool, text: str, **document: Any) -> None:
    """Reports one finished change: `text` on standard error, or `document` as a line of JSON on
    standard output."""
    if as_json:
        print(json_line(document), flush=True)
    else:
        say(text)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "none") -> None:
    """Prints a table; columns of numbers are right-aligned, None is a dash. Without rows it prints
    `empty` on standard error and nothing on standard output."""
    found = [list(row) for row in rows]
    if not found:
        say(empty)
        return
    if sys.stdout.isatty():
        _rich_table(columns, found)
        return
    texts = [[_text(cell) for cell in row] for row in found]
    numeric = [all(_is_number(row[i]) for row in found) for i in range(len(columns))]
    lines = [list(columns), *texts]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _rich_table(columns: Sequence[str], rows: list[list[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(header_style="bold")
    for i, column in enumerate(columns):
        numeric = all(_is_number(row[i]) for row in rows)
        drawn.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(_text(cell)) for cell in row))
    Console().print(drawn)


def _is_number(cell: Any) -> bool:
    return cell is None or isinstance(cell, int | float) and not isinstance(cell, bool)


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)


def json_document(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_bytes(data: bytes | None) -> Any:
    """Returns bytes as JSON: UTF-8 as text, other bytes as {"base64": text}, None as null."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def json_value(value: Any) -> Any:
    """Returns an object in the types of JSON; a value of any other type becomes text."""
    if isinstance(value, bytes):
        return json_bytes(value)
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def iso_time(timestamp_ms: int) -> str | None:
    """Returns a time as ISO 8601 in UTC, with milliseconds; None outside the years 1970 to 9999."""
    if not 0 <= timestamp_ms < 253_402_300_800_000:
        return None
    seconds, ms = divmod(timestamp_ms, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{ms:03d}Z"


class Progress:
    """A line on standard error that counts, when it is a terminal and the work takes long.

    `is_shown`: False when the data itself goes to the terminal. `part` returns the finished share
    of the work, 0 to 1; None when it is unknown."""

    def __init__(
        self,
        verb: str,
        is_shown: bool = True,
        part: Callable[[], float | None] = lambda: None,
        noun: str | None = "record",
    ) -> None:
        """`noun`: what is counted; None: bytes alone."""
        self.verb, self.part, self.noun = verb, part, noun
        self.count, self.size_bytes = 0, 0
        self._began = time.monotonic()
        self._next = self._began + PROGRESS_AFTER_S
        self._shown = False
        self._to_terminal = is_shown and sys.stderr.isatty()

    def add(self, count: int, size_bytes: int) -> None:
        self.count += count
        self.size_bytes += size_bytes
        if self._to_terminal and time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_EVERY_S
            self._shown = True
            part = self.part()
            percent = "" if part is None else f", {100 * part:.0f} %"
            print(f"\r{self.summary()}{percent}\x1b[K", end="", file=sys.stderr, flush=True)

    def summary(self) -> str:
        seconds = max(time.monotonic() - self._began, 1e-9)
        megabytes = self.size_bytes / 1e6
        counted = "" if self.noun is None else f"{count_of(self.count, self.noun)}, "
        return (
            f"{self.verb} {counted}{megabytes:.1f} MB in {seconds:.1f} s"
            f" ({megabytes / seconds:.1f} MB/s)"
        )

    def end(self) -> None:
        """Removes the line."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False
