"""Makes the response to any request that reports one error, from the message schemas alone.

Each entry of the request that has an entry in the response (a topic, a partition, a group) gets the
code, at the deepest level that the request names: a Produce gets it for each partition, a JoinGroup
at the top. Codes about the group, the coordinator or the session (WHOLE_REQUEST) go to the highest
level that has a field for a code. Entries of request and response are paired by the field that
identifies them, which has different names in different messages.
"""

from __future__ import annotations

from typing import Any

from barnabas.errors import ERRORS
from barnabas.wire import Struct, request, response
from barnabas.wire.messages import Message, below
from barnabas.wire.schema import Field, within

CODE_NAMES = ("errorCode", "partitionErrorCode")
# Each row: the names that messages have for one thing.
IDENTITIES = (
    ("name", "topic", "topicName"),
    ("topicId",),
    ("partitionIndex", "partition", "index", "partitionId"),
    ("groupId",),
    ("key",),
    ("resourceType",),
    ("resourceName",),
    ("transactionalId",),
    ("memberId",),
    ("groupInstanceId",),
    ("producerId",),
)
ECHOED = "memberId"  # at the top of a response: an error must not change the member's id
WHOLE_REQUEST = frozenset(
    """
    COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR ILLEGAL_GENERATION
    INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT
    REBALANCE_IN_PROGRESS GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
    UNSUPPORTED_VERSION NOT_CONTROLLER NON_EMPTY_GROUP GROUP_ID_NOT_FOUND
    FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH MEMBER_ID_REQUIRED
    GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID FETCH_SESSION_TOPIC_ID_ERROR FENCED_MEMBER_EPOCH
    UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH
    """.split()
)


# Since KIP-848 a response of Kafka with an error has only the error code at the top level.
BARE = frozenset((68, 69, *range(76, 80), *range(83, 88), *range(90, 93)))


class NoPlace(Exception):
    """This response cannot report an error: it has no code, or the request named no entry."""


def error_answer(key: int, version: int, asked: Struct, code: int) -> Struct:
    """Returns the response to the request `asked` that reports the error `code` as Kafka does: in
    each entry, or once for the whole request. Raises NoPlace when the response has no field for
    it."""
    answer = _Answer(key, version, code)
    made = answer.cls()
    places = answer.places(made, asked, "", "")
    if not places:
        raise NoPlace(f"{answer.message.name} v{version} has no field for an error here")
    depths = [depth for depth, _, _ in places]
    whole = key in BARE or ERRORS[code].name in WHOLE_REQUEST
    wanted = min(depths) if whole else max(depths)
    for depth, entry, field in places:
        if depth == wanted:
            setattr(entry, field, code)
            if key not in BARE:
                answer.nothing_known(entry)
    if key not in BARE and ECHOED in answer.names("") and hasattr(asked, ECHOED):
        setattr(made, ECHOED, getattr(asked, ECHOED))
    for depth, entry, field in answer.filled:
        if depth >= wanted:  # omits the entries inside: they would mean success
            setattr(entry, field, [])
    return made


class _Answer:
    def __init__(self, key: int, version: int, code: int) -> None:
        self.message = response(key, version)
        self.asked = request(key, version)
        self.version = version
        self.code = code
        self.cls = self.message.cls
        self.filled: list[tuple[int, Struct, str]] = []  # arrays that mirror the request
        self._path_of: dict[type[Struct], str] = {}

    def _fields(self, message: Message, path: str) -> list[Field]:
        return [field for field in message.fields_at(path) if within(field.versions, self.version)]

    def names(self, path: str) -> set[str]:
        return {field.name for field in self._fields(self.message, path)}

    def places(
        self, made: Struct, asked: Struct, path: str, asked_path: str, depth: int = 0
    ) -> list[tuple[int, Struct, str]]:
        """Returns (depth, entry, name) of each error code, after it has added the entries that the
        request names."""
        self._path_of[type(made)] = path
        found: list[tuple[int, Struct, str]] = []
        for field in self._fields(self.message, path):
            if field.name in CODE_NAMES and not field.array:
                found.append((depth, made, field.name))
            elif field.array and field.base == "{}":
                found += self._entries(field, made, asked, path, asked_path, depth)
        return found

    def _entries(
        self, field: Field, made: Struct, asked: Struct, path: str, asked_path: str, depth: int
    ) -> list[tuple[int, Struct, str]]:
        here = below(path, field.name)
        if not self._holds_code(here):
            return []
        source = self._source(here, asked_path)
        if source is None:
            return []
        entry_of = self.message.struct(here)
        rows, found = [], []
        for row in getattr(asked, source.name) or ():
            entry = entry_of()
            if source.base == "{}":
                inner = below(asked_path, source.name)
                self._identify(entry, row, here, inner)
                found += self.places(entry, row, here, inner, depth + 1)
            else:
                setattr(entry, self._first_of_kind(here, source.base), row)
                found += self.places(entry, row, here, asked_path, depth + 1)
            rows.append(entry)
        setattr(made, field.name, rows)
        self.filled.append((depth, made, field.name))
        return found

    def _holds_code(self, path: str) -> bool:
        return any(
            field.name in CODE_NAMES
            or (field.base == "{}" and field.array and self._holds_code(below(path, field.name)))
            for field in self._fields(self.message, path)
        )

    def _source(self, here: str, asked_path: str) -> Field | None:
        """Returns the array of the request that the entries at `here` answer."""
        wanted = self._identities(self.message, here)
        plain = None
        for field in self._fields(self.asked, asked_path):
            if not field.array:
                continue
            if field.base == "{}":
                if wanted.keys() & self._identities(self.asked, below(asked_path, field.name)):
                    return field
            elif plain is None and self._first_of_kind(here, field.base) is not None:
                plain = field
        return plain

    def _identities(self, message: Message, path: str) -> dict[int, str]:
        """Returns the field name of each of IDENTITIES that a struct has."""
        names = {field.name for field in self._fields(message, path) if field.base != "{}"}
        found = {}
        for number, aliases in enumerate(IDENTITIES):
            for alias in aliases:
                if alias in names:
                    found[number] = alias
                    break
        return found

    def _identify(self, entry: Struct, row: Struct, here: str, inner: str) -> None:
        theirs = self._identities(self.asked, inner)
        for number, name in self._identities(self.message, here).items():
            if number in theirs:
                setattr(entry, name, getattr(row, theirs[number]))

    def _first_of_kind(self, path: str, kind: str) -> Any:
        """Returns the field for a plain element of the request: the first identity of its type."""
        identities = set(self._identities(self.message, path).values())
        for field in self._fields(self.message, path):
            if field.base == kind and not field.array and field.name in identities:
                return field.name
        return None

    def nothing_known(self, entry: Struct) -> None:
        """Sets offsets, ids and epochs beside a code to -1, as in Kafka's responses."""
        path = self._path_of[type(entry)]
        known = {*CODE_NAMES, *(self._identities(self.message, path).values() if path else ())}
        known |= {"throttleTimeMs", "sessionId", "sessionLifetimeMs"}
        for field in self._fields(self.message, path):
            if field.name in known or field.array or field.default_text is not None:
                continue
            if field.name.endswith("ErrorCode"):  # the field describes another entry
                continue
            if field.base in ("int16", "int32", "int64"):
                setattr(entry, field.name, -1)
            elif field.name == "errorMessage":
                setattr(entry, field.name, ERRORS[self.code].meaning)
