"""Schemas by id: from a dict, a directory, or a schema registry over HTTP.

A directory holds ID.avsc (Avro), ID.desc (Protobuf: a FileDescriptorSet, as `protoc
--include_imports --descriptor_set_out` writes it) or ID.json (JSON schema); a dict maps ids to the
text of an Avro schema, or to a Schema. A registry gets the requests GET /schemas/ids/ID, and GET
/subjects/SUBJECT/versions/VERSION for references; Protobuf schemas are fetched in their serialized
form (?format=serialized).

The schema of an id never changes, so a process fetches it once. Limits: ANSWER_BYTES_MAX bytes and
TIMEOUT_S seconds for a response, REFERENCES_MAX references for a schema, and CACHE_MAX schemas for
the cache.
"""

import base64
import binascii
import functools
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

AVRO, PROTOBUF, JSON = "avro", "protobuf", "json"
SUFFIXES = {".avsc": AVRO, ".desc": PROTOBUF, ".json": JSON}
TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024
REFERENCES_MAX, CACHE_MAX = 200, 1000


class SchemaError(Exception):
    """A schema is missing, unreadable, or of another kind; `str` gives one plain line."""


@dataclass(frozen=True)
class Schema:
    """A schema. `kind`: AVRO, PROTOBUF or JSON. `text`: the schema of Avro or JSON. `files`:
    Protobuf's serialized FileDescriptorProtos, imported files first. `named`: the texts of the
    referenced Avro schemas, each after those that it needs."""

    kind: str
    text: str = ""
    files: tuple[bytes, ...] = ()
    named: tuple[str, ...] = ()


class Schemas(Protocol):
    """Any object that knows schemas by id, and that Spark can pickle."""

    def schema(self, schema_id: int) -> Schema:
        """Returns the schema with this id. Raises SchemaError."""


@dataclass(frozen=True)
class KnownSchemas:
    """Schemas that the caller gives as a mapping."""

    known: Mapping[int, Schema | str]

    def schema(self, schema_id: int) -> Schema:
        """Returns the schema with this id. Raises SchemaError."""
        found = self.known.get(schema_id)
        if found is None:
            raise SchemaError(f"there is no schema {schema_id}")
        return Schema(AVRO, found) if isinstance(found, str) else found


@dataclass(frozen=True)
class SchemaDirectory:
    """Schemas in files. Every machine that decodes must have the directory."""

    path: str

    def schema(self, schema_id: int) -> Schema:
        """Returns the schema with this id. Raises SchemaError."""
        for suffix, kind in SUFFIXES.items():
            file = Path(self.path) / f"{schema_id}{suffix}"
            try:
                if kind == PROTOBUF:
                    return Schema(kind, files=_files_of_set(file.read_bytes(), str(file)))
                return Schema(kind, file.read_text())
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as error:
                raise SchemaError(f"{file}: {error}") from None
        names = ", ".join(f"{schema_id}{suffix}" for suffix in SUFFIXES)
        raise SchemaError(f"{self.path} has no file {names}")


@dataclass(frozen=True)
class Registry:
    """A schema registry. `url`: http://HOST:PORT, with user:password@ before the host if it is
    needed."""

    url: str

    def schema(self, schema_id: int) -> Schema:
        """Returns the schema with this id. Raises SchemaError."""
        return _registered(self.url.rstrip("/"), schema_id)


def schemas_of(given: "Schemas | Mapping[int, Schema | str] | str") -> Schemas:
    """Returns a registry for text that begins with http:// or https://, a directory for other
    text."""
    if isinstance(given, str):
        is_url = given.startswith(("http://", "https://"))
        return Registry(given) if is_url else SchemaDirectory(given)
    return KnownSchemas(dict(given)) if isinstance(given, Mapping) else given


# ------------------------------------------------------------------------------ the registry


@functools.lru_cache(maxsize=CACHE_MAX)
def _registered(url: str, schema_id: int) -> Schema:
    answer = _get(url, f"/schemas/ids/{schema_id}")
    kind = str(answer.get("schemaType", "AVRO")).lower()
    if kind not in (AVRO, PROTOBUF, JSON):
        raise SchemaError(f"schema {schema_id} at {_shown(url)} has the unknown type {kind}")
    if kind == PROTOBUF:
        answer = _get(url, f"/schemas/ids/{schema_id}?format=serialized")
        files = [_file(row) for row in _referred(url, answer, "?format=serialized")]
        return Schema(kind, files=(*files, _file(answer)))
    named = tuple(str(row["schema"]) for row in _referred(url, answer, "")) if kind == AVRO else ()
    return Schema(kind, str(answer["schema"]), named=named)


def _referred(url: str, answer: Mapping[str, Any], form: str) -> list[Mapping[str, Any]]:
    """Returns the direct and indirect references of a schema, each once, before the schemas that
    need it."""
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    under_way: set[tuple[str, int]] = set()

    def visit(row: Mapping[str, Any]) -> None:
        for one in row.get("references") or ():
            key = str(one["subject"]), int(one["version"])
            if key in found or key in under_way:
                continue
            under_way.add(key)
            if len(under_way) > REFERENCES_MAX:
                raise SchemaError(f"a schema at {_shown(url)} refers to more than {REFERENCES_MAX}")
            subject = urllib.parse.quote(key[0], safe="")
            referred = _get(url, f"/subjects/{subject}/versions/{key[1]}{form}")
            visit(referred)
            found[key] = referred

    visit(answer)
    return list(found.values())


def _get(url: str, path: str) -> dict[str, Any]:
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    request = urllib.request.Request(
        urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", "")) + path,
        headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"},
    )
    if parts.username is not None:
        user = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
        token = base64.b64encode(":".join(user).encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    where = f"{_shown(url)}{path}"
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            content = answer.read(ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        raise SchemaError(f"{where} answers {error.code} {error.reason}") from None
    except OSError as error:
        raise SchemaError(f"{where} cannot be read: {getattr(error, 'reason', error)}") from None
    if len(content) > ANSWER_BYTES_MAX:
        raise SchemaError(f"{where} answers more than {ANSWER_BYTES_MAX} bytes")
    try:
        found = json.loads(content)
        found["schema"]
    except (ValueError, TypeError, KeyError):
        raise SchemaError(f"{where} does not answer with a schema") from None
    return dict(found)


def _shown(url: str) -> str:
    """Returns the URL without its password."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _file(answer: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(str(answer["schema"]), validate=True)
    except (binascii.Error, ValueError):
        raise SchemaError(
            "the registry does not give Protobuf schemas in their serialized form: keep a"
            " FileDescriptorSet (protoc --include_imports --descriptor_set_out) in a directory"
        ) from None


def _files_of_set(content: bytes, where: str) -> tuple[bytes, ...]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorSet.FromString(content)
    except DecodeError:
        raise SchemaError(f"{where} is not a FileDescriptorSet") from None
    return tuple(one.SerializeToString() for one in found.file)
