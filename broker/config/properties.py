"""The grammar of server.properties: that of java.util.Properties.

A line is `key=value`, `key:value` or `key value`; a line that begins with `#` or `!` is a comment;
a backslash at the end of a line joins the next one without its leading white space; `\\t \\n \\r
\\f \\uXXXX` are escapes, and a backslash before any other character stands for that character. The
last of two equal keys wins. Bytes are read as UTF-8, or as ISO-8859-1 when they are not UTF-8."""

from __future__ import annotations

from barnabas.config.settings import ConfigError

FILE_BYTES_MAX = 4 << 20  # a configuration larger than this is a mistake, not a configuration
_WHITE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property:
    """A key, its value and the number of its first line."""

    __slots__ = ("key", "value", "line")

    def __init__(self, key: str, value: str, line: int) -> None:
        self.key, self.value, self.line = key, value, line


def parse_properties(data: bytes | str, name: str = "properties") -> list[Property]:
    """Returns all properties in order, with duplicates. Raises ConfigError, which names the line.
    `name`: the file's name for the error."""
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(
            f"{name}: larger than {FILE_BYTES_MAX} bytes; this is not a settings file."
        )
    if isinstance(data, bytes):
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("iso-8859-1")
    else:
        text = data
    return [_split(line, number, name) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    parts: list[str] = []
    begin = 0
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        stripped = line.lstrip(_WHITE)
        if not any(parts):  # as in Java, empty joined lines do not count
            parts = []
            if not stripped or stripped[0] in "#!":
                continue
            begin = number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            parts.append(stripped[:-1])
            continue
        found.append((begin, "".join([*parts, stripped])))
        parts = []
    if parts:  # the file ends in a backslash
        found.append((begin, "".join(parts)))
    return found


def _split(line: str, number: int, name: str) -> Property:
    end = 0
    while end < len(line) and line[end] not in "=:" + _WHITE:
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_WHITE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITE)
    return Property(_unescape(key, number, name), _unescape(rest, number, name), number)


def _unescape(text: str, number: int, name: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append("" if char == "\\" else char)
            continue
        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or any(d not in "0123456789abcdefABCDEF" for d in digits):
                raise ConfigError(
                    f"{name} line {number}: \\u{digits} is not a character."
                    " Write four hexadecimal digits after \\u, or two backslashes for one."
                )
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Java writes a character beyond the first plane as two \u escapes.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
