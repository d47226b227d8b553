"""Regular expressions from clients, matched in time that grows with pattern times text and no more.

Python's own `re` goes back and tries again, so that a pattern of a few letters can hold a thread
for hours. This one follows all ways through the pattern at once (Thompson's construction), and
keeps the sets of places that it came to, so that the next text goes from set to set, as RE2 does.
An object is for one thread at a time. The syntax is RE2's, as Kafka's brokers take it:

    a  .  [a-z]  [^a-z]  [[:alpha:]]  \\d \\D \\w \\W \\s \\S  \\t \\n
    \\101  \\x41  \\x{41}  \\Q...\\E
    \\pL \\p{Lu} \\P{Latin} \\p{^Nd}: classes and scripts of Unicode, of which ASCII's part is known
    xy  x|y  (x)  (?:x)  (?i:x)  (?i)x  (?s)x  (?m)x  (?P<name>x)  ^ $ \\A \\z \\b \\B
    x* x+ x? x{n} x{n,} x{n,m}, each also lazy (x*?), which makes no difference to a whole match

`matches` asks for the whole text, as Java's Pattern.matches does.
Limits: STEPS_MAX steps of the compiled pattern, REPEAT_MAX for a counted repetition, DEPTH_MAX;
SETS_MAX sets are kept, of PLACES_MAX places together, then all are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

STEPS_MAX = 20_000
REPEAT_MAX = 1000  # as RE2
DEPTH_MAX = 200  # of groups within groups
SETS_MAX = 1000
PLACES_MAX = 200_000
NO_LIMIT = -1
NOWHERE = 0  # the number of the set without places

Ranges = tuple[tuple[int, int], ...]
DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Ranges = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))
LAST = 0x10FFFF
CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "v": 11, "a": 7}
POSIX: dict[str, Ranges] = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "ascii": ((0, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "digit": DIGITS,
    "lower": ((0x61, 0x7A),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "word": WORD,
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}


# Scripts that ASCII has no letter of; \\p of another name is refused.
SCRIPTS_BEYOND_ASCII = frozenset(
    "Arabic Armenian Bengali Bopomofo Braille Cherokee Coptic Cyrillic Devanagari Ethiopic Georgian"
    " Gothic Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana Inherited Kannada Katakana Khmer"
    " Lao Malayalam Mongolian Myanmar Ogham Oriya Runic Sinhala Syriac Tamil Telugu Thaana Thai"
    " Tibetan Yi".split()
)
CATEGORIES = frozenset(
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl"
    " Zp Zs".split()
)


class InvalidPattern(ValueError):
    """The text is no pattern of this syntax, or a larger one than is taken."""


class _Step(NamedTuple):
    """One step: characters it takes, or an assertion, or a fork; and where to go on."""

    kind: str  # "char", "fork", "assert", "match"
    ranges: Ranges = ()
    folds: bool = False
    test: str = ""
    to: int = -1
    other: int = -1


# A piece of the program: gives its first step, when told what follows.
Piece = Callable[[int], int]


class Regex:
    """A compiled pattern. Raises InvalidPattern when made."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._steps: list[_Step] = []
        piece = _Parser(pattern, self).whole()
        self._match = self.add(_Step("match"))
        self._first = piece(self._match)
        # Whether what is before and behind a place matters, beyond the ends of the text.
        self._looks_around = any(step.test not in ("", "begin", "end") for step in self._steps)
        self._forget_sets()

    def add(self, step: _Step) -> int:
        """For the parser: one more step; its place."""
        if len(self._steps) >= STEPS_MAX:
            raise InvalidPattern("the pattern is too large")
        self._steps.append(step)
        return len(self._steps) - 1

    def set_target(self, at: int, to: int) -> None:
        """For loops: a fork is made before what it leads to."""
        self._steps[at] = self._steps[at]._replace(to=to)

    def matches(self, text: str) -> bool:
        """Whether the whole text fits."""
        if self._looks_around or not text:
            return self._matches_anew(text)
        last = len(text) - 1
        state = -1  # before the first letter
        for at, letter in enumerate(text):
            key = state, letter, at == last
            after = self._moves.get(key)
            if after is None:
                after = self._move(key, text, at)
            if after == NOWHERE:
                return False
            state = after
        return self._match in self._sets[state]

    def _forget_sets(self) -> None:
        self._sets: list[frozenset[int]] = [frozenset()]
        self._numbers: dict[frozenset[int], int] = {frozenset(): NOWHERE}
        self._moves: dict[tuple[int, str, bool], int] = {}
        self._places = 0

    def _move(self, key: tuple[int, str, bool], text: str, at: int) -> int:
        """The number of the set that a letter leads to, which is kept."""
        state, letter, _ = key
        here: list[int] = []
        if state < 0:
            self._follow(self._first, text, 0, here, set())
        else:
            here = list(self._sets[state])
        places = frozenset(self._after(here, text, at, letter))
        if len(self._sets) >= SETS_MAX or self._places > PLACES_MAX:
            self._forget_sets()  # the set that led here is not asked for again by its number
            key = (-2, letter, False)
        number = self._numbers.get(places)
        if number is None:
            number = self._numbers[places] = len(self._sets)
            self._sets.append(places)
            self._places += len(places)
        self._moves[key] = number
        return number

    def _after(self, here: list[int], text: str, at: int, letter: str) -> list[int]:
        """The steps that are reached by a letter."""
        point = ord(letter)
        after: list[int] = []
        seen: set[int] = set()
        for index in here:
            step = self._steps[index]
            if step.kind == "char" and _takes(step, point, letter):
                self._follow(step.to, text, at + 1, after, seen)
        return after

    def _matches_anew(self, text: str) -> bool:
        steps = self._steps
        here: list[int] = []
        self._follow(self._first, text, 0, here, set())
        for at, letter in enumerate(text):
            here = self._after(here, text, at, letter)
            if not here:
                return False
        return any(steps[index].kind == "match" for index in here)

    def _follow(self, first: int, text: str, at: int, into: list[int], seen: set[int]) -> None:
        """Adds the steps that are reached without taking a letter."""
        open_steps = [first]
        while open_steps:
            index = open_steps.pop()
            if index in seen:
                continue
            seen.add(index)
            step = self._steps[index]
            if step.kind == "fork":
                open_steps += (step.other, step.to)
            elif step.kind == "assert":
                if _holds(step.test, text, at):
                    open_steps.append(step.to)
            else:
                into.append(index)


def _takes(step: _Step, point: int, letter: str) -> bool:
    if _within(step.ranges, point):
        return True
    if not step.folds:
        return False
    folded = {letter.lower(), letter.upper()}
    return any(len(one) == 1 and _within(step.ranges, ord(one)) for one in folded)


def _within(ranges: Ranges, point: int) -> bool:
    return any(low <= point <= high for low, high in ranges)


def _holds(test: str, text: str, at: int) -> bool:
    if test == "begin":
        return at == 0
    if test == "end":
        return at == len(text)
    if test == "line begin":
        return at == 0 or text[at - 1] == "\n"
    if test == "line end":
        return at == len(text) or text[at] == "\n"
    before = at > 0 and _within(WORD, ord(text[at - 1]))
    behind = at < len(text) and _within(WORD, ord(text[at]))
    return (before != behind) == (test == "edge")


def _inverted(ranges: Ranges) -> Ranges:
    found, low = [], 0
    for first, last in sorted(ranges):
        if first > low:
            found.append((low, first - 1))
        low = max(low, last + 1)
    if low <= LAST:
        found.append((low, LAST))
    return tuple(found)


class _Parser:
    """Reads a pattern from left to right; each part becomes a Piece."""

    def __init__(self, pattern: str, regex: Regex) -> None:
        self._text = pattern
        self._at = 0
        self._regex = regex
        self._add = regex.add
        self._folds = False
        self._dot_takes_newline = False
        self._by_lines = False
        self._depth = 0

    def whole(self) -> Piece:
        piece = self._alternatives()
        if self._at < len(self._text):
            raise InvalidPattern("an unexpected )")
        return piece

    # -- reading ----------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        found = self._peek()
        if not found:
            raise InvalidPattern("the pattern ends too early")
        self._at += 1
        return found

    def _skip(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    # -- structure --------------------------------------------------------------------------------

    def _alternatives(self) -> Piece:
        pieces = [self._sequence()]
        while self._skip("|"):
            pieces.append(self._sequence())
        return self._any_of(pieces)

    def _sequence(self) -> Piece:
        pieces: list[Piece] = []
        while self._peek() not in ("", "|", ")"):
            if self._skip("\\Q"):
                end = self._text.find("\\E", self._at)
                literal = self._text[self._at : len(self._text) if end < 0 else end]
                self._at += len(literal) + (0 if end < 0 else 2)
                pieces += [self._char(((ord(c), ord(c)),)) for c in literal]
                continue
            pieces.append(self._repeated(self._atom()))
        return _all_of(pieces)

    def _repeated(self, piece: Piece) -> Piece:
        while True:
            if self._skip("*"):
                low, high = 0, NO_LIMIT
            elif self._skip("+"):
                low, high = 1, NO_LIMIT
            elif self._skip("?"):
                low, high = 0, 1
            else:
                counts = self._counts()
                if counts is None:
                    return piece
                low, high = counts
            self._skip("?")
            piece = self._times(piece, low, high)
            if self._peek() in ("*", "+", "?") and self._peek():
                raise InvalidPattern("a repetition of a repetition")

    def _counts(self) -> tuple[int, int] | None:
        """{n}, {n,} or {n,m}; anything else behind a brace stands for itself, as in RE2."""
        if self._peek() != "{":
            return None
        end = self._text.find("}", self._at)
        parts = self._text[self._at + 1 : max(end, 0)].split(",")
        if end < 0 or not parts[0].isdecimal() or len(parts) > 2:
            return None
        if len(parts) == 2 and parts[1] and not parts[1].isdecimal():
            return None
        low = int(parts[0][:5])
        high = low if len(parts) == 1 else int(parts[1][:5]) if parts[1] else NO_LIMIT
        if max(low, high) > REPEAT_MAX or (high != NO_LIMIT and high < low):
            raise InvalidPattern("a repetition count that cannot be")
        self._at = end + 1
        return low, high

    def _atom(self) -> Piece:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            return self._char(self._class())
        if letter == ".":
            newline = () if self._dot_takes_newline else ((10, 10),)
            return self._char(_inverted(newline), folds=False)
        if letter == "^":
            return self._assertion("line begin" if self._by_lines else "begin")
        if letter == "$":
            return self._assertion("line end" if self._by_lines else "end")
        if letter == "\\":
            return self._escape()
        if letter in "*+?":
            raise InvalidPattern("nothing to repeat")
        return self._char(((ord(letter), ord(letter)),))

    def _group(self) -> Piece:
        flags = self._folds, self._dot_takes_newline, self._by_lines
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidPattern("groups within groups, too many of them")
        if self._skip("?") and not self._named() and not self._flags():
            self._depth -= 1
            return _all_of([])  # (?i): for what follows in this group
        piece = self._alternatives()
        if not self._skip(")"):
            raise InvalidPattern("a ( that is not closed")
        self._depth -= 1
        self._folds, self._dot_takes_newline, self._by_lines = flags
        return piece

    def _named(self) -> bool:
        if not (self._skip("P<") or self._skip("<")):
            return False
        end = self._text.find(">", self._at)
        name = self._text[self._at : max(end, self._at)]
        if not name.replace("_", "a").isalnum():
            raise InvalidPattern("a group's name")
        self._at = end + 1
        return True

    def _flags(self) -> bool:
        """Behind (? ; whether a group follows."""
        value = True
        while (letter := self._next()) not in ":)":
            if letter == "-" and value:
                value = False
            elif letter == "i":
                self._folds = value
            elif letter == "s":
                self._dot_takes_newline = value
            elif letter == "m":
                self._by_lines = value
            elif letter not in "U":
                raise InvalidPattern(f"(?{letter} is not known")
        return letter == ":"

    def _escape(self) -> Piece:
        letter = self._next()
        for names, test in (("A", "begin"), ("z", "end"), ("b", "edge"), ("B", "no edge")):
            if letter in names:
                return self._assertion(test)
        return self._char(self._escaped(letter))

    def _escaped(self, letter: str) -> Ranges:
        """What an escape stands for, inside a class or outside."""
        for name, ranges in (("d", DIGITS), ("w", WORD), ("s", SPACE)):
            if letter == name:
                return ranges
            if letter == name.upper():
                return _inverted(ranges)
        if letter in "pP":
            ranges = self._unicode_class()
            return _inverted(ranges) if letter == "P" else ranges
        if letter in "01234567":
            return self._octal(letter)
        if letter == "x":
            digits = self._hex()
            return ((digits, digits),)
        if letter in CONTROLS:
            return ((CONTROLS[letter], CONTROLS[letter]),)
        if letter.isascii() and letter.isalnum():
            raise InvalidPattern(f"\\{letter} is not known")
        return ((ord(letter), ord(letter)),)

    def _octal(self, first: str) -> Ranges:
        """\\0, \\07, \\123. A digit that could name a group says nothing here, as in RE2."""
        digits = first
        while len(digits) < 3 and self._peek() and self._peek() in "01234567":
            digits += self._next()
        if first != "0" and len(digits) == 1:
            raise InvalidPattern(f"\\{first} is not known")
        return ((int(digits, 8), int(digits, 8)),)

    def _unicode_class(self) -> Ranges:
        """Behind \\p. Topics have names of ASCII: the rest of a class stands for nothing."""
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            name = self._text[self._at : max(end, self._at)]
            self._at = end + 1
        negated, name = name.startswith("^"), name.removeprefix("^")
        from unicodedata import category

        if name == "Any":
            ranges: Ranges = ((0, LAST),)
        elif name in CATEGORIES:
            points = (p for p in range(128) if category(chr(p)).startswith(name))
            ranges = tuple((point, point) for point in points)
        elif name in ("Latin", "Common"):
            letters = tuple((p, p) for p in range(128) if chr(p).isalpha())
            others = tuple((p, p) for p in range(128) if not chr(p).isalpha())
            ranges = letters if name == "Latin" else others
        elif name in SCRIPTS_BEYOND_ASCII:
            ranges = ()
        else:
            raise InvalidPattern(f"\\p{{{name[:20]}}} is not known")
        return _inverted(ranges) if negated else ranges

    def _hex(self) -> int:
        if self._skip("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : max(end, self._at)]
            self._at = end + 1
        else:
            digits = self._next() + self._next()
        try:
            point = int(digits, 16)
        except ValueError:
            raise InvalidPattern("\\x needs a number") from None
        if not 0 <= point <= LAST:
            raise InvalidPattern("\\x of no letter")
        return point

    def _class(self) -> Ranges:
        negated = self._skip("^")
        found: list[tuple[int, int]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            ranges, single = self._class_part()
            if single and self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._next()
                until, also_single = self._class_part()
                if not also_single or until[0][0] < ranges[0][0]:
                    raise InvalidPattern("a range of letters that cannot be")
                ranges = ((ranges[0][0], until[0][0]),)
            found += ranges
        self._next()
        return _inverted(tuple(found)) if negated else tuple(found)

    def _class_part(self) -> tuple[Ranges, bool]:
        """Ranges, and whether they are one letter, which may begin a range."""
        if self._skip("[:"):
            end = self._text.find(":]", self._at)
            name = self._text[self._at : max(end, self._at)]
            if name.removeprefix("^") not in POSIX:
                raise InvalidPattern(f"[:{name[:20]}:] is not known")
            self._at = end + 2
            ranges = POSIX[name.removeprefix("^")]
            return (_inverted(ranges) if name.startswith("^") else ranges), False
        letter = self._next()
        if letter != "\\":
            return ((ord(letter), ord(letter)),), True
        ranges = self._escaped(self._next())
        return ranges, len(ranges) == 1 and ranges[0][0] == ranges[0][1]

    # -- pieces -----------------------------------------------------------------------------------

    def _char(self, ranges: Ranges, folds: bool | None = None) -> Piece:
        folding = self._folds if folds is None else folds
        return lambda to: self._add(_Step("char", ranges, folding, to=to))

    def _assertion(self, test: str) -> Piece:
        return lambda to: self._add(_Step("assert", test=test, to=to))

    def _any_of(self, pieces: list[Piece]) -> Piece:
        if len(pieces) == 1:
            return pieces[0]

        def made(to: int) -> int:
            first = pieces[-1](to)
            for piece in reversed(pieces[:-1]):
                first = self._add(_Step("fork", to=piece(to), other=first))
            return first

        return made

    def _times(self, piece: Piece, low: int, high: int) -> Piece:
        def made(to: int) -> int:
            first = to
            if high == NO_LIMIT:
                first = self._loop(piece, to)
            else:
                for _ in range(high - low):
                    first = self._add(_Step("fork", to=piece(first), other=to))
            for _ in range(low):
                first = piece(first)
            return first

        return made

    def _loop(self, piece: Piece, to: int) -> int:
        fork = self._add(_Step("fork", other=to))
        body = piece(fork)
        self._regex.set_target(fork, body)
        return fork


def _all_of(pieces: list[Piece]) -> Piece:
    def made(to: int) -> int:
        for piece in reversed(pieces):
            to = piece(to)
        return to

    return made
