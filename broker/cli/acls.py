"""`barnabas acls`: lists, adds and removes access rules, with the options of kafka-acls."""

import argparse
from collections.abc import Iterable, Mapping

from barnabas.cli.connecting import (
    actions_of,
    cluster_of,
    json_lines_option,
    json_option,
    speaks_to_broker,
)
from barnabas.cli.output import did, fail, json_document, table
from barnabas.client.acls import (
    ANY,
    Acl,
    AclFilter,
    create_acls,
    delete_acls,
    describe_acls,
)
from barnabas.security.acl_codes import (
    CLUSTER,
    CLUSTER_NAME,
    LITERAL,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    WILDCARD,
)

EPILOG = """\
examples:
  barnabas acls list
  barnabas acls list --topic news --pattern match            every rule that applies to the topic
  barnabas acls add --allow-principal User:alice --operation read --topic news --group readers
  barnabas acls add --allow-principal User:bob --producer --topic log- --pattern prefixed
  barnabas acls add --allow-principal User:carol --consumer --topic news --group readers
  barnabas acls add --deny-principal User:bob --deny-host 10.0.0.9 --operation all --topic '*'
  barnabas acls remove --principal User:bob

A rule that denies wins over all that allow. --producer stands for write, describe and create of
topics, --consumer for read and describe of topics and read of groups. `*` is every name of a type.
The broker needs authorizer.class.name.
"""

RESOURCES = {
    "--topic": "TOPIC",
    "--group": "GROUP",
    "--transactional-id": "TRANSACTIONAL_ID",
    "--delegation-token": "DELEGATION_TOKEN",
    "--user-principal": "USER",
}
PATTERNS = {**PATTERN_TYPES, "ANY": ANY, "MATCH": MATCH}
PRODUCER = {"TOPIC": ("WRITE", "DESCRIBE", "CREATE"), "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE")}
CONSUMER = {"TOPIC": ("READ", "DESCRIBE"), "GROUP": ("READ",)}
COLUMNS = ("permission", "principal", "host", "operation", "resource", "pattern", "name")


def configure(parser: argparse.ArgumentParser) -> None:
    action = actions_of(parser, EPILOG, ACTIONS)
    found = action("list", "list rules")
    _resource_options(found, "any", ("literal", "prefixed", "any", "match"))
    _filter_options(found)
    json_option(found)
    add = action("add", "add rules")
    _resource_options(add, "literal", ("literal", "prefixed"))
    for verb in ("allow", "deny"):
        add.add_argument(
            f"--{verb}-principal",
            metavar="TYPE:NAME",
            action="append",
            default=[],
            help=f"the principal to {verb}; User:* is everyone; may be repeated",
        )
        add.add_argument(
            f"--{verb}-host",
            metavar="ADDRESS",
            action="append",
            default=[],
            help=f"the host to {verb} (default *); may be repeated",
        )
    _operation_option(add)
    add.add_argument("--producer", action="store_true", help="the rights of a producer")
    add.add_argument("--consumer", action="store_true", help="the rights of a consumer")
    add.add_argument(
        "--idempotent",
        action="store_true",
        help="idempotent_write of the cluster too, which Kafka before 2.8 needs",
    )
    json_lines_option(add)
    remove = action("remove", "remove rules")
    _resource_options(remove, "any", ("literal", "prefixed", "any", "match"))
    _filter_options(remove)
    remove.add_argument("--all", action="store_true", help="remove every rule of the cluster")
    json_lines_option(remove)


def _resource_options(
    parser: argparse.ArgumentParser, pattern: str, patterns: tuple[str, ...]
) -> None:
    for option, kind in RESOURCES.items():
        parser.add_argument(
            option,
            metavar="NAME",
            action="append",
            default=[],
            help=f"a {kind.lower().replace('_', ' ')}; may be repeated",
        )
    parser.add_argument("--cluster", action="store_true", help="the cluster")
    parser.add_argument(
        "--pattern",
        choices=patterns,
        default=pattern,
        help=f"what the names are (default {pattern})",
    )


def _operation_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--operation",
        metavar="OPERATION",
        action="append",
        default=[],
        type=_operation,
        help=", ".join(name.lower() for name in OPERATIONS) + "; may be repeated",
    )


def _filter_options(parser: argparse.ArgumentParser) -> None:
    _operation_option(parser)
    parser.add_argument("--principal", metavar="TYPE:NAME", help="only rules for this principal")
    parser.add_argument("--host", metavar="ADDRESS", help="only rules for this host")
    parser.add_argument("--permission", choices=("allow", "deny"), help="only rules of this kind")


def _operation(text: str) -> int:
    """Takes Read, READ and describe-configs."""
    name = text.upper().replace("-", "_")
    for known, code in OPERATIONS.items():
        if name in (known, known.replace("_", "")):
            return code
    raise argparse.ArgumentTypeError(f"unknown operation {text!r}")


@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    return ACTIONS[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        found = {acl for wanted in _filters(arguments) for acl in describe_acls(cluster, wanted)}
    rows = [_document(acl) for acl in sorted(found)]
    if arguments.json:
        json_document(rows)
    else:
        table(COLUMNS, ([row[name] for name in COLUMNS] for row in rows), empty="no rules")
    return 0


def _add(arguments: argparse.Namespace) -> int:
    rules = list(dict.fromkeys(_rules(arguments)))
    if not rules:
        return fail(
            "nothing to add: name a principal (--allow-principal User:NAME), an operation and a"
            " resource (--operation read --topic NAME), or --producer or --consumer."
        )
    with cluster_of(arguments) as cluster:
        create_acls(cluster, rules)
    for rule in rules:
        _did(arguments, "added", rule)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    filters = _filters(arguments)
    if filters == [AclFilter()] and not arguments.all:
        return fail("this would remove every rule. Say which ones, or --all.")
    with cluster_of(arguments) as cluster:
        removed = delete_acls(cluster, filters)
    for acl in removed:
        _did(arguments, "removed", acl)
    if not removed:
        return fail("no rule matches. `barnabas acls list` shows the rules.")
    return 0


ACTIONS = {"list": _list, "add": _add, "remove": _remove}


def _named(arguments: argparse.Namespace) -> list[tuple[int, str]]:
    """Returns resource types and names of the options."""
    found = [
        (RESOURCE_TYPES[kind], name)
        for option, kind in RESOURCES.items()
        for name in getattr(arguments, option[2:].replace("-", "_"))
    ]
    return found + [(CLUSTER, CLUSTER_NAME)] * arguments.cluster


def _filters(arguments: argparse.Namespace) -> list[AclFilter]:
    permission = arguments.permission and PERMISSIONS[arguments.permission.upper()]
    resources: list[tuple[int, str | None]] = [*_named(arguments)]
    return [
        AclFilter(
            resource_type,
            name,
            PATTERNS[arguments.pattern.upper()],
            arguments.principal,
            arguments.host,
            operation,
            permission or ANY,
        )
        for resource_type, name in resources or [(ANY, None)]
        for operation in arguments.operation or [ANY]
    ]


def _rules(arguments: argparse.Namespace) -> Iterable[Acl]:
    pattern = PATTERN_TYPES[arguments.pattern.upper()]
    for permission in ("allow", "deny"):
        hosts = getattr(arguments, f"{permission}_host") or [WILDCARD]
        for principal in getattr(arguments, f"{permission}_principal"):
            for resource_type, name, operation in _wanted(arguments):
                kind = LITERAL if resource_type == CLUSTER else pattern
                for host in hosts:
                    code = PERMISSIONS[permission.upper()]
                    yield Acl(resource_type, name, kind, principal, host, operation, code)


def _wanted(arguments: argparse.Namespace) -> Iterable[tuple[int, str, int]]:
    """Yields resource types, names and operations."""
    for resource_type, name in _named(arguments):
        for operation in arguments.operation:
            yield resource_type, name, operation
        for role, is_wanted in ((PRODUCER, arguments.producer), (CONSUMER, arguments.consumer)):
            kind = _name(RESOURCE_TYPES, resource_type)
            for known in role.get(kind, ()) if is_wanted else ():
                yield resource_type, name, OPERATIONS[known]
    if arguments.idempotent:
        yield CLUSTER, CLUSTER_NAME, OPERATIONS["IDEMPOTENT_WRITE"]


def _name(known: Mapping[str, int], code: int) -> str:
    return next((name for name, each in known.items() if each == code), str(code))


def _document(acl: Acl) -> dict[str, str]:
    return {
        "permission": _name(PERMISSIONS, acl.permission).lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _name(OPERATIONS, acl.operation).lower(),
        "resource": _name(RESOURCE_TYPES, acl.resource_type).lower(),
        "pattern": _name(PATTERN_TYPES, acl.pattern_type).lower(),
        "name": acl.name,
    }


def _did(arguments: argparse.Namespace, what: str, acl: Acl) -> None:
    row = _document(acl)
    text = (
        f"{what}: {row['permission']} {row['principal']} from {row['host']} {row['operation']}"
        f" on {row['resource']} {row['name']} ({row['pattern']})"
    )
    did(arguments.json, text, action=what, **row)
