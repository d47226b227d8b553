"""Access rules in the metadata tree, in the form of Kafka's ZooKeeper authorizer. Pure functions.

    /kafka-acl/TYPE/NAME                       the rules of a literal name, or of `*`
    /kafka-acl-extended/prefixed/TYPE/PREFIX   those of a prefix
    /kafka-acl-changes/acl_changes_N           note: the rules of TYPE:NAME have changed
    /kafka-acl-extended-changes/acl_changes_N  note: {"version": 1, "resourceType": "TOPIC",
                                               "name": PREFIX, "patternType": "PREFIXED"}

TYPE is Topic, Group, Cluster, TransactionalId, DelegationToken or User. The rules of a pattern are
one node, whose version a writer compares:

    {"version": 1, "acls": [{"principal": "User:alice", "permissionType": "Allow",
                             "operation": "Read", "host": "*"}, ...]}

A name is a part of a path as it is: one with a slash can have no rules of its own, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas.metadata import znode_json as znode
from barnabas.metadata.tree import InvalidPath, check_path
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.metadata.znodes import ACL_CHANGES_PATHS
from barnabas.security.access_rules import AccessControlEntry, ResourcePattern
from barnabas.security.acl_codes import (
    ALLOW,
    DENY,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    RESOURCE_TYPES,
)

LITERAL_ROOT = "/kafka-acl"
EXTENDED_ROOT = "/kafka-acl-extended"
PREFIXED_ROOT = f"{EXTENDED_ROOT}/prefixed"
NOTE_NAME = "acl_changes_"


def _pascal(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


_TYPES = {_pascal(name): code for name, code in RESOURCE_TYPES.items()}
_TYPE_NAMES = {code: name for name, code in _TYPES.items()}
_OPERATIONS = {_pascal(name): code for name, code in OPERATIONS.items()}
_OPERATION_NAMES = {code: name for name, code in _OPERATIONS.items()}
_PERMISSIONS = {"Allow": ALLOW, "Deny": DENY}
_PERMISSION_NAMES = {code: name for name, code in _PERMISSIONS.items()}

# What holds the nodes of rules and notes, as Kafka makes it.
PATHS = (
    *(f"{root}/{name}" for root in (LITERAL_ROOT, PREFIXED_ROOT) for name in _TYPES),
    *ACL_CHANGES_PATHS,
)


def path_of(pattern: ResourcePattern) -> str:
    """Raises InvalidPath and TooLarge: no node can have the name."""
    if not pattern.name or "/" in pattern.name:
        raise InvalidPath(f"{pattern.name[:60]!r} cannot name a node")
    root = LITERAL_ROOT if pattern.pattern_type == LITERAL else PREFIXED_ROOT
    path = f"{root}/{_TYPE_NAMES[pattern.resource_type]}/{pattern.name}"
    check_path(path)
    return path


def pattern_of(path: str) -> ResourcePattern | None:
    """The pattern whose rules a node has; None for the nodes above them. Raises ZnodeDataError."""
    for root, pattern_type in ((PREFIXED_ROOT, PREFIXED), (LITERAL_ROOT, LITERAL)):
        if path.startswith(root + "/"):
            type_name, _, name = path.removeprefix(root + "/").partition("/")
            return ResourcePattern(_type(type_name), name, pattern_type) if name else None
    return None


def encode(entries: Collection[AccessControlEntry]) -> bytes:
    rows = [
        {
            "principal": entry.principal,
            "permissionType": _PERMISSION_NAMES[entry.permission],
            "operation": _OPERATION_NAMES[entry.operation],
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return znode.to_json({"version": 1, "acls": rows})


def decode(data: bytes) -> frozenset[AccessControlEntry]:
    """Raises ZnodeDataError, also for an operation that is not known."""
    if not data:
        return frozenset()
    found = znode.read_object(data, range(1, 2))
    return frozenset(_entry(row) for row in znode.list_of(found, "acls"))


def _entry(row: object) -> AccessControlEntry:
    if not isinstance(row, dict):
        raise ZnodeDataError(f"{repr(row)[:60]} is not an access rule")
    principal = znode.text_of(row, "principal")
    if ":" not in principal:
        raise ZnodeDataError(f"principal is {principal[:60]!r}, not TYPE:NAME")
    operation = _OPERATIONS.get(znode.text_of(row, "operation"))
    permission = _PERMISSIONS.get(znode.text_of(row, "permissionType"))
    if operation is None or permission is None:
        raise ZnodeDataError(f"{repr(row)[:120]} has an unknown operation or permission")
    return AccessControlEntry(principal, znode.text_of(row, "host"), operation, permission)


def note_path_and_data(pattern: ResourcePattern) -> tuple[str, bytes]:
    """Path without its number, and data, of the note that a pattern's rules have changed."""
    type_name = next(n for n, code in RESOURCE_TYPES.items() if code == pattern.resource_type)
    if pattern.pattern_type == LITERAL:
        return f"{ACL_CHANGES_PATHS[0]}/{NOTE_NAME}", f"{type_name}:{pattern.name}".encode()
    note = {
        "version": 1,
        "resourceType": type_name,
        "name": pattern.name,
        "patternType": "PREFIXED",
    }
    return f"{ACL_CHANGES_PATHS[1]}/{NOTE_NAME}", znode.to_json(note)


def decode_note(path: str, data: bytes) -> ResourcePattern:
    """Raises ZnodeDataError."""
    if path.startswith(ACL_CHANGES_PATHS[0] + "/"):
        try:
            type_name, _, name = data.decode().partition(":")
        except UnicodeDecodeError as error:
            raise ZnodeDataError(f"{data[:60]!r} is not UTF-8") from error
        return ResourcePattern(_type(type_name), name, LITERAL)
    found = znode.read_object(data, range(1, 2))
    return ResourcePattern(
        _type(znode.text_of(found, "resourceType")), znode.text_of(found, "name"), PREFIXED
    )


def _type(name: str) -> int:
    """Nodes have Kafka's Pascal form of a type, notes the capitals too."""
    code = _TYPES.get(name) or RESOURCE_TYPES.get(name.upper())
    if code is None:
        raise ZnodeDataError(f"{name[:60]!r} is not a resource type")
    return code
