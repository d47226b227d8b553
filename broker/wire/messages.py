"""All messages: by name, or by API key and direction.

    metadata = response(3)
    topic = metadata.struct("topics")(name="t", partitions=[])
    data = metadata.encode(metadata.cls(topics=[topic]), version=9)
    metadata.decode(data, version=9).topics[0].name

Field names are Kafka's own. One class serves all versions of a struct; a field that the version
lacks has its default. A tagged struct that was not sent is None. Classes and programs are made on
first use and kept; all brokers of a process share them, because only the protocol defines them.
Next: headers.py.
"""

from functools import cache
from os import register_at_fork
from threading import RLock
from typing import Any

from barnabas.cext.codec.wire import KINDS, Program
from barnabas.cext.codec.wire_struct import Struct, struct_class
from barnabas.errors import UnsupportedVersion
from barnabas.wire.api_keys import api_key
from barnabas.wire.schema import Field, Schema, places, schema_of, within

Buffer = bytes | bytearray | memoryview

# One lock for all lazy creation: of two classes for one struct, each would refuse the objects of
# the other. A fork takes the lock first; otherwise the child could wait for a thread that it does
# not have.
_making = RLock()
register_at_fork(
    before=_making.acquire, after_in_parent=_making.release, after_in_child=_making.release
)


class Message:
    """One message in all its versions."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.name = schema.name
        self.version_min, self.version_max = schema.versions
        self._classes: dict[str, type[Struct]] = {}
        self._programs: dict[int, Program] = {}

    def __repr__(self) -> str:
        return f"<Message {self.name} {self.version_min}-{self.version_max}>"

    @property
    def cls(self) -> type[Struct]:
        """Returns the class of the whole message, whose keyword arguments are fields."""
        return self.struct("")

    def struct(self, path: str) -> type[Struct]:
        """Returns the class of the struct (or of an array's elements) at a path:
        "topics.partitions"."""
        found = self._classes.get(path)
        if found is not None:
            return found
        with _making:
            if path not in self._classes:
                self._classes[path] = self._make_class(path)
            return self._classes[path]

    def program(self, version: int) -> Program:
        """Returns the codec of one version, which is made on first use. Raises
        UnsupportedVersion."""
        found = self._programs.get(version)
        if found is not None:
            return found
        if not self.version_min <= version <= self.version_max:
            raise UnsupportedVersion(
                f"{self.name} has versions {self.version_min}-{self.version_max}, not {version}"
            )
        with _making:
            if version not in self._programs:
                self._programs[version] = self._make_program("", self.schema.fields, version)
            return self._programs[version]

    def decode(self, data: Buffer, version: int, offset: int = 0) -> Struct:
        """Returns the message in `data` from byte `offset` to the end. Raises MalformedMessage,
        also when bytes remain, and UnsupportedVersion."""
        return self.program(version).decode_whole(data, offset)

    def encode(self, message: Struct, version: int) -> bytes:
        """Returns the bytes of a message in this version, without header and size. Raises
        UnwritableMessage for a value that the version cannot have, UnsupportedVersion."""
        return self.program(version).encode(message)

    def fields_at(self, path: str) -> list[Field]:
        """Returns the fields of the struct at a path such as "topics.partitions"; "" is the
        message. Raises KeyError."""
        fields = self.schema.fields
        for step in path.split(".") if path else ():
            fields = next((f.fields for f in fields if f.name == step and f.base == "{}"), [])
            if not fields:
                raise KeyError(f"{self.name} has no struct {path}")
        return fields

    def default_of(self, field: Field, path: str) -> Any:
        """Returns the default of a field: None, a value, a list, or the class of a required
        struct."""
        must_be = not field.array and field.base == "{}" and field.default_text != "null"
        # A struct that may be null accepts None; when it is left out, it is a struct of defaults.
        by_class = field.tag < 0 or bool(field.nullable)
        return self.struct(path) if must_be and by_class else field.default

    def _make_class(self, path: str) -> type[Struct]:
        fields = self.fields_at(path)
        defaults = [self.default_of(field, below(path, field.name)) for field in fields]
        name = f"{self.name}.{path}" if path else self.name
        return struct_class(name, [field.name for field in fields], defaults)

    def _make_program(self, path: str, fields: list[Field], version: int) -> Program:
        flexible = version >= self.schema.flexible_from
        present, absent = [], []
        for field in fields:
            here = below(path, field.name)
            default = self.default_of(field, here)
            same = self._same(field, here, default)
            if not within(field.versions, version):
                absent.append((field.name, field.ignorable, default, same))
                continue
            sub = self._make_program(here, field.fields, version) if field.base == "{}" else None
            nullable = within(field.nullable, version)
            tag = field.tag if within(field.tagged, version) else -1
            compact = flexible and field.compact
            kind = KINDS[field.base]
            present.append(
                (field.name, kind, field.array, nullable, tag, compact, default, same, sub)
            )
        present.sort(key=lambda op: op[4])  # stable: the plain ones (-1) stay in wire order
        title = f"{self.name} v{version}"
        return Program(title, self.struct(path), present, absent, flexible)

    def _same(self, field: Field, path: str, default: Any) -> Any:
        """Returns the value that a field has when it is left out: for a struct, one of defaults
        alone."""
        if field.array or field.base != "{}" or field.default_text == "null":
            return default
        return self.struct(path)()


def below(path: str, name: str) -> str:
    """Returns the path of a field in the struct at `path`."""
    return f"{path}.{name}" if path else name


_made: dict[str, Message] = {}


def by_name(name: str) -> Message:
    """Returns the message with this name in the schema text, such as "FetchRequest". Raises
    KeyError."""
    found = _made.get(name)
    if found is None:
        with _making:
            found = _made.get(name)
            if found is None:
                found = _made[name] = Message(schema_of(name))
    return found


def names() -> list[str]:
    """Returns the names of all messages."""
    return list(places())


def request(key: int, version: int | None = None) -> Message:
    """Returns the request of an API key. Raises UnsupportedVersion when the request lacks the given
    (stable) version."""
    if version is not None:
        api_key(key, version)
    return _request(key)


def response(key: int, version: int | None = None) -> Message:
    """Returns the response of an API key. Raises UnsupportedVersion for an unknown key, or when the
    response lacks the given version."""
    if version is not None:
        api_key(key, version)
    return _response(key)


# A request that Python answers needs these about thirty times. One entry for each API key.
@cache
def _request(key: int) -> Message:
    return by_name(api_key(key).name + "Request")


@cache
def _response(key: int) -> Message:
    return by_name(api_key(key).name + "Response")
