"""JAAS lines and files, read as Kafka's JaasConfig and Java's ConfigFile read them.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

    KafkaServer {
        org.apache.kafka.common.security.scram.ScramLoginModule required;
    };

The value of a setting has modules only; a file has named sections of modules. Tokens are those of
Java's StreamTokenizer as Kafka configures it: words of letters, digits and `-_$.`, quoted texts
with Java's escapes, numbers (which are not values), and comments: after `/` or `//`, or within
`/* */`. A `#` does not start a comment. No error message contains a value: values are passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.config import ConfigError
from barnabas.config.providers import check_private

JAVA_OPTION = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")
FILE_BYTES_MAX = 1 << 20

FLAGS = ("required", "requisite", "sufficient", "optional")
TEXT_CHARS_MAX = 1 << 20
ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
WORD, NUMBER, QUOTED = "word", "number", "quoted"


class LoginModule(NamedTuple):
    """One login module and its options. `options` contain passwords."""

    name: str  # a Java class
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<LoginModule {self.name}>"


class Token(NamedTuple):
    """One token. `kind` is WORD, NUMBER, QUOTED or the character itself."""

    kind: str
    text: str

    @property
    def value(self) -> str | None:
        """Returns the text, which StreamTokenizer calls sval; None for numbers and single
        characters."""
        return self.text if self.kind in (WORD, QUOTED) else None


def parse_line(text: str) -> list[LoginModule]:
    """Returns the modules in a value of sasl.jaas.config. Raises ConfigError."""
    tokens = _Tokens(text)
    found = []
    while (first := tokens.next()) is not None:
        found.append(_module(tokens, first))
    if not found:
        raise ConfigError("it names no login module.")
    return found


def parse_file(text: str) -> dict[str, list[LoginModule]]:
    """Returns the sections of a JAAS file, by name. Raises ConfigError."""
    tokens = _Tokens(text)
    sections: dict[str, list[LoginModule]] = {}
    while (name := tokens.next()) is not None:
        if name.value is None or not tokens.takes("{"):
            raise ConfigError("a section does not begin with its name and {.")
        if name.text in sections:
            raise ConfigError(f"the section {name.text} is there twice.")
        modules = []
        while (first := tokens.next()) is not None and first.kind != "}":
            modules.append(_module(tokens, first))
        if first is None or not tokens.takes(";"):
            raise ConfigError(f"the section {name.text} does not end with }};.")
        sections[name.text] = modules
    return sections


def server_sections(listener: str) -> tuple[str, ...]:
    """Returns the names of a listener's sections, the stronger one first: for the logins of its
    clients, and of this broker at the same listener of others. Kafka:
    JaasContext.loadServerContext."""
    return f"{listener.lower()}.KafkaServer", "KafkaServer"


def sections_of_process(
    environ: Mapping[str, str],
) -> tuple[str | None, Mapping[str, list[LoginModule]]]:
    """Returns the path of the JAAS file that KAFKA_OPTS names, as Kafka does, and its sections;
    (None, {}) when KAFKA_OPTS names no file. Raises ConfigError."""
    option = JAVA_OPTION.search(environ.get("KAFKA_OPTS", ""))
    if option is None:
        return None, {}
    path = option[1]
    try:
        check_private(path, "passwords")
        with open(path, encoding="utf-8") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"the JAAS file {path} (KAFKA_OPTS) cannot be read: {reason}.") from None
    try:
        return path, parse_file(text)
    except ConfigError as error:
        raise ConfigError(f"the JAAS file {path} (KAFKA_OPTS): {error.problems[0]}") from None


def _module(tokens: _Tokens, first: Token) -> LoginModule:
    flag = tokens.next()
    name = first.text if first.kind == WORD else "a login module"  # a quoted text may be secret
    if first.value is None:
        raise ConfigError("a login module has no name.")
    if flag is None or flag.value is None or flag.value.lower() not in FLAGS:
        raise ConfigError(f"the control flag of {name} is not one of {', '.join(FLAGS)}.")
    options: dict[str, str] = {}
    while (key := tokens.next()) is not None and key.kind != ";":
        equals = tokens.takes("=")
        value = tokens.next() if equals else None
        if key.value is None or value is None or value.value is None:
            raise ConfigError(f'an option of {name} has no value: write name="value".')
        options[key.value] = value.value
    if key is None:
        raise ConfigError(f"the entry of {name} does not end with a semicolon.")
    return LoginModule(first.text, options)


class _Tokens:
    def __init__(self, text: str) -> None:
        if len(text) > TEXT_CHARS_MAX:
            raise ConfigError(f"more than {TEXT_CHARS_MAX} characters.")
        self._found = _tokens(text)

    def next(self) -> Token | None:
        return next(self._found, None)

    def takes(self, kind: str) -> bool:
        token = self.next()
        return token is not None and token.kind == kind


def _is_letter(char: str) -> bool:
    return (char.isascii() and char.isalpha()) or char in "-_$" or ord(char) >= 0xA0


def _is_digit(char: str) -> bool:
    return char in "0123456789.-"


def _tokens(text: str) -> Iterator[Token]:
    at, end = 0, len(text)
    while at < end:
        char = text[at]
        if ord(char) <= 32:
            at += 1
        elif char == "/":
            at = _after_comment(text, at)
        elif char in "\"'":
            at, value = _quoted(text, at)
            yield Token(QUOTED, value)
        elif _is_digit(char) or _is_letter(char):
            kind = _kind(text, at)
            start = at
            at += 1
            while at < end and kind in (WORD, NUMBER) and _goes_on(kind, text[at]):
                at += 1
            yield Token(kind, text[start:at])
        else:
            at += 1
            yield Token(char, char)


def _kind(text: str, at: int) -> str:
    """Returns the kind of the token at a position. A `-` is a token of its own unless a digit or a
    point follows."""
    if text[at] == "-" and not text[at + 1 : at + 2].isdigit() and text[at + 1 : at + 2] != ".":
        return "-"
    return NUMBER if _is_digit(text[at]) else WORD


def _goes_on(kind: str, char: str) -> bool:
    return char in "0123456789." if kind == NUMBER else _is_letter(char) or _is_digit(char)


def _after_comment(text: str, at: int) -> int:
    if text.startswith("/*", at):
        close = text.find("*/", at + 2)
        return len(text) if close < 0 else close + 2
    lines = [place for place in (text.find(end, at) for end in "\r\n") if place >= 0]
    return min(lines, default=len(text))


def _quoted(text: str, at: int) -> tuple[int, str]:
    """Returns the position after the quote, and its text; the end of the line ends the quote
    too."""
    quote, at, found = text[at], at + 1, []
    while at < len(text) and text[at] not in (quote, "\n", "\r"):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if char in "01234567":
                start, most = at - 1, 3 if char < "4" else 2
                while at < len(text) and at - start < most and text[at] in "01234567":
                    at += 1
                char = chr(int(text[start:at], 8))
            else:
                char = ESCAPES.get(char, char)
        found.append(char)
    return at + (at < len(text) and text[at] == quote), "".join(found)
