"""Short names of Kerberos principals by sasl.kerberos.principal.to.local.rules, as Kafka's
KerberosShortNamer makes them.

    DEFAULT                                   the first part of a name of the own realm
    RULE:[1:$1@$0](.*@OTHER)s/@.*//           for names of 1 part: the text after the colon, with
    RULE:[2:$1](host.*)s/(.*)/h-$1/g/L        the realm as $0 and the parts as $1 and $2; it must
                                              match the pattern in (); then s/// replaces, and /L
                                              or /U changes the case

The first rule that matches is used. The login fails when no rule matches, or when the short name
contains / or @.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.config import ConfigError

_RULE = re.compile(
    r"RULE:\[(?P<parts>[0-9]+):(?P<form>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<find>[^/]*)/(?P<put>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_NAME = re.compile(r"(?P<first>[^/@]*)(?:/(?P<second>[^/@]*))?@(?P<realm>[^/@]*)")
_PLACE = re.compile(r"\$([0-9]+)")


class NoShortName(Exception):
    """No rule fits, or its result is not a simple name."""


class Rule(NamedTuple):
    """`parts`: how many parts of a name without its realm; 0: DEFAULT."""

    parts: int = 0
    form: str = ""
    match: re.Pattern[str] | None = None
    find: re.Pattern[str] | None = None
    put: str = ""  # as re.sub takes it
    is_repeated: bool = False
    case: str = ""


class ShortNames:
    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Raises ConfigError."""
        self._rules = [_parsed(rule) for rule in rules]
        self._default_realm = default_realm

    def of(self, principal: str) -> str:
        """Raises NoShortName."""
        name = _NAME.fullmatch(principal)
        if name is None:
            raise NoShortName
        second = name["second"]
        values = [name["realm"], name["first"], *([] if second is None else [second])]
        for rule in self._rules:
            found = self._applied(rule, values)
            if found is not None:
                if "/" in found or "@" in found or not found:
                    raise NoShortName
                return {"L": found.lower, "U": found.upper}.get(rule.case, found.__str__)()
        raise NoShortName

    def _applied(self, rule: Rule, values: list[str]) -> str | None:
        if not rule.parts:
            return values[1] if values[0] == self._default_realm else None
        if rule.parts != len(values) - 1:
            return None
        base = _PLACE.sub(lambda place: values[int(place[1])], rule.form)
        if rule.match is not None and rule.match.fullmatch(base) is None:
            return None
        if rule.find is None:
            return base
        return rule.find.sub(rule.put, base, count=0 if rule.is_repeated else 1)


def _parsed(text: str) -> Rule:
    """Raises ConfigError."""
    if text == "DEFAULT":
        return Rule()
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text} is neither DEFAULT nor RULE:[n:string](regexp)s/pattern/text/g.")
    parts = int(found["parts"])
    places = [int(place) for place in _PLACE.findall(found["form"])]
    if not 1 <= parts <= 2 or any(place > parts for place in places):
        raise ConfigError(f"{text}: a name has 1 or 2 parts, and $0 to $n name the realm and them.")
    try:
        match = re.compile(found["match"]) if found["match"] is not None else None
        find = re.compile(found["find"]) if found["find"] is not None else None
        put = _as_python(found["put"] or "")
        if find is not None:
            find.sub(put, "")  # also a group that the pattern does not have
    except (re.error, IndexError) as error:
        raise ConfigError(f"{text}: {error}.") from None
    return Rule(parts, found["form"], match, find, put, bool(found["all"]), found["case"] or "")


def _as_python(put: str) -> str:
    """Java writes groups as $1, and takes the letter after a backslash as it is."""

    def piece(found: re.Match[str]) -> str:
        if found["group"]:
            return rf"\g<{found['group']}>"
        plain = found["plain"] or found["letter"]
        return plain.replace("\\", r"\\")

    return re.sub(r"\$(?P<group>[0-9])|\\(?P<plain>.)|(?P<letter>.)", piece, put)
