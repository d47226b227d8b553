"""`barnabas quotas`: lists, sets and removes quotas of users, client ids and addresses."""

import argparse

from barnabas.cli.connecting import (
    cluster_of,
    connection_options,
    json_lines_option,
    json_option,
    speaks_to_broker,
)
from barnabas.cli.output import did, fail, json_document, table
from barnabas.cli.topics import key_and_value
from barnabas.client.quotas import KINDS, Names, alter_quotas, describe_quotas, entity_text

EPILOG = """\
KEY is producer_byte_rate or consumer_byte_rate (bytes a second), request_percentage (percent of a
thread), controller_mutation_rate (partitions a second); for --ip, connection_creation_rate.

examples:
  barnabas quotas list
  barnabas quotas list --user alice
  barnabas quotas add --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
  barnabas quotas add --user alice --client-id etl request_percentage=50
  barnabas quotas add --default-client-id producer_byte_rate=1048576
  barnabas quotas remove --user alice producer_byte_rate
  barnabas quotas remove --user alice                every quota of alice herself
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary, act in (
        ("list", "list quotas", _list),
        ("add", "set quotas; the others of the same user, client id or address stay", _add),
        ("remove", "remove quotas", _remove),
    ):
        sub = actions.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=EPILOG,
            formatter_class=argparse.RawTextHelpFormatter,
        )
        _entity_options(sub)
        if name == "add":
            sub.add_argument("quotas", metavar="KEY=VALUE", nargs="+", type=key_and_value)
        elif name == "remove":
            sub.add_argument("keys", metavar="KEY", nargs="*", help="default: all that there are")
        (json_option if name == "list" else json_lines_option)(sub)
        connection_options(sub)
        sub.set_defaults(act=act)


def _entity_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("whose quotas")
    for kind, meaning in zip(KINDS, ("user", "client id", "address"), strict=True):
        either = group.add_mutually_exclusive_group()
        either.add_argument(f"--{kind}", metavar="NAME", help=f"one {meaning}")
        either.add_argument(
            f"--default-{kind}",
            action="store_true",
            help=f"each {meaning} without a quota of its own",
        )


@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    names: Names = {
        kind: getattr(arguments, kind.replace("-", "_"))
        for kind in KINDS
        if getattr(arguments, kind.replace("-", "_")) is not None
        or getattr(arguments, f"default_{kind.replace('-', '_')}")
    }
    if not names and arguments.action != "list":
        return fail("whose quotas? Give --user, --client-id or --ip, or --default-user and so on.")
    return int(arguments.act(names, arguments))


def _list(names: Names, arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        found = describe_quotas(cluster, names)
    if arguments.json:
        json_document([{"entity": dict(q.names), "quotas": dict(q.values)} for q in found])
        return 0
    table(
        (*KINDS, "quota", "value"),
        [
            (*(_shown(quota.names, kind) for kind in KINDS), key, f"{value:g}")
            for quota in found
            for key, value in sorted(quota.values.items())
        ],
        empty="there are no quotas",
    )
    return 0


def _shown(names: Names, kind: str) -> str | None:
    return (names[kind] or "(default)") if kind in names else None


def _add(names: Names, arguments: argparse.Namespace) -> int:
    values: dict[str, float | None] = {}
    for key, text in arguments.quotas:
        try:
            values[key] = float(text)
        except ValueError:
            return fail(f"{key}={text}: the value is not a number.")
    return _alter(names, values, "set", arguments)


def _remove(names: Names, arguments: argparse.Namespace) -> int:
    keys = arguments.keys
    if not keys:
        with cluster_of(arguments) as cluster:
            found = [q for q in describe_quotas(cluster, names) if q.names.keys() == names.keys()]
        keys = [key for quota in found for key in quota.values]
    if not keys:
        return fail(f"{entity_text(names)} has no quotas.")
    return _alter(names, dict.fromkeys(keys), "removed", arguments)


def _alter(
    names: Names, values: dict[str, float | None], verb: str, arguments: argparse.Namespace
) -> int:
    with cluster_of(arguments) as cluster:
        alter_quotas(cluster, names, values)
    did(
        arguments.json,
        f"{verb} {', '.join(values)} of {entity_text(names)}",
        entity=dict(names),
        quotas=values,
    )
    return 0
