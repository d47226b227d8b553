"""`barnabas configs`: shows and changes the settings of topics and of running brokers, and the
levels of their loggers."""

import argparse
from typing import Any

from barnabas.cli.connecting import (
    cluster_of,
    connection_options,
    json_lines_option,
    json_option,
    speaks_to_broker,
)
from barnabas.cli.output import did, fail, json_document, say, table
from barnabas.cli.topics import key_and_value
from barnabas.client import ConfigChange, Resource, alter_configs, describe_configs
from barnabas.client.admin import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    SET,
    SOURCES,
    SUBTRACT,
    TOPIC,
)

KINDS = {"topic": TOPIC, "broker": BROKER, "default": BROKER, "loggers": BROKER_LOGGER}
UNKNOWN, DEFAULT = -1, 5  # sources: before Kafka 1.1 a broker sends only whether it is the default

EPILOG = """\
KIND is topic (with a name), broker (with its id), default (settings of all brokers), or loggers
(with the id of their broker). A level is TRACE, DEBUG, INFO, WARN, ERROR or FATAL; it lasts until
the broker stops, and a logger without its own has that of its parent, the last one of `root`.

examples:
  barnabas configs describe topic news           the settings that are not at their default
  barnabas configs describe broker 1 --all       every setting, and its source
  barnabas configs alter topic news --add retention.ms=3600000
  barnabas configs alter topic news --append cleanup.policy=compact
  barnabas configs alter topic news --delete retention.ms
  barnabas configs alter default --add log.cleaner.threads=2
  barnabas configs describe loggers 1
  barnabas configs alter loggers 1 --add barnabas.controller=DEBUG
  barnabas configs alter loggers 1 --delete barnabas.controller
  barnabas configs describe --unsupported        settings that this build accepts without effect
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in (
        ("describe", "show settings"),
        ("alter", "change settings; the others keep their values"),
    ):
        sub = actions.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=EPILOG,
            formatter_class=argparse.RawTextHelpFormatter,
        )
        sub.add_argument("kind", metavar="KIND", nargs="?", choices=KINDS, help=", ".join(KINDS))
        sub.add_argument("name", metavar="NAME", nargs="?", help="topic, or broker id")
        sub.set_defaults(act=_describe if name == "describe" else _alter)
        if name == "describe":
            sub.add_argument("--all", action="store_true", help="also settings at their default")
            sub.add_argument(
                "--unsupported",
                action="store_true",
                help="the settings that this build of barnabas accepts without effect",
            )
            json_option(sub)
        else:
            _change_options(sub)
        connection_options(sub)


def _change_options(parser: argparse.ArgumentParser) -> None:
    for flag, meaning in (
        ("--add", "set a value"),
        ("--append", "add items to a list"),
        ("--subtract", "remove items from a list"),
    ):
        parser.add_argument(
            flag,
            metavar="KEY=VALUE",
            action="append",
            default=[],
            type=key_and_value,
            help=f"{meaning}; may be repeated",
        )
    parser.add_argument(
        "--delete", metavar="KEY", action="append", default=[], help="reset to the default"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only check whether the broker would accept it"
    )
    json_lines_option(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.action == "describe" and arguments.unsupported:
        return _list_unsupported(arguments)
    return _run_connected(arguments)


@speaks_to_broker
def _run_connected(arguments: argparse.Namespace) -> int:
    resource = _resource(arguments)
    if isinstance(resource, str):
        return fail(resource)
    return int(arguments.act(resource, arguments))


def _resource(arguments: argparse.Namespace) -> Resource | str:
    """Returns the resource that the arguments name, or the text of an error."""
    kind, name = arguments.kind, arguments.name
    if kind is None:
        return "give a KIND: `topic NAME`, `broker ID` or `default`."
    if kind == "default":
        return Resource(BROKER, "") if name is None else "`default` takes no name. Leave it out."
    if not name:
        what, word = ("id of the broker", "ID") if kind == "loggers" else (kind, "NAME")
        return f"the {what} is missing: `barnabas configs {arguments.action} {kind} {word}`."
    if kind == "broker" and not name.isdecimal():
        return f"{name!r} is not a broker's id. Give its number, or use `default` for all brokers."
    if kind == "loggers" and not name.isdecimal():
        return f"{name!r} is not a broker's id. Give the number of the broker of the loggers."
    return Resource(KINDS[kind], name)


def _describe(resource: Resource, arguments: argparse.Namespace) -> int:
    with cluster_of(arguments) as cluster:
        found = describe_configs(cluster, resource)
    rows: list[dict[str, Any]] = [
        {
            "name": row.name,
            "value": row.value,
            "source": SOURCES.get(row.configSource, "default" if row.isDefault else "set"),
            "readOnly": row.readOnly,
            "sensitive": row.isSensitive,
        }
        for row in found
        if arguments.all or not _is_default(row.configSource, row.isDefault)
    ]
    if arguments.json:
        json_document(rows)
    elif rows:
        table(
            ("name", "value", "source", "change"),
            [
                (
                    row["name"],
                    "(hidden)" if row["sensitive"] else row["value"],
                    row["source"],
                    "restart" if row["readOnly"] else "live",
                )
                for row in rows
            ],
        )
    else:
        say(f"{resource}: all settings are at their default (--all shows them)")
    return 0


def _is_default(source: int, is_default: bool) -> bool:
    return is_default if source == UNKNOWN else source == DEFAULT


def _alter(resource: Resource, arguments: argparse.Namespace) -> int:
    changes = [
        ConfigChange(operation, key, value)
        for operation, pairs in (
            (SET, arguments.add),
            (APPEND, arguments.append),
            (SUBTRACT, arguments.subtract),
        )
        for key, value in pairs
    ]
    changes += [ConfigChange(DELETE, key) for key in arguments.delete]
    if not changes:
        return fail("nothing to alter. Give --add, --delete, --append or --subtract.")
    names = [change.name for change in changes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return fail(f"{', '.join(twice)}: given twice. Make one change of a setting at a time.")
    with cluster_of(arguments) as cluster:
        alter_configs(cluster, resource, changes, validate_only=arguments.dry_run)
    verb = "would alter" if arguments.dry_run else "altered"
    did(
        arguments.json,
        f"{verb} {resource}: {', '.join(names)}",
        kind=arguments.kind,
        name=resource.name or None,
        settings=names,
        altered=not arguments.dry_run,
    )
    return 0


def _list_unsupported(arguments: argparse.Namespace) -> int:
    """Prints the settings without effect of this installation; a broker of another version may have
    another list."""
    from barnabas.config.settings import unsupported

    scope = {"topic": "topic", "broker": "broker", "default": "broker"}.get(arguments.kind)
    rows = [
        {
            "scope": setting.scope,
            "name": setting.name,
            "meaning": setting.meaning,
            "why": setting.why_without_effect,
        }
        for setting in sorted(unsupported(), key=lambda found: (found.scope, found.name))
        if scope in (None, setting.scope)
    ]
    if arguments.json:
        json_document(rows)
    else:
        table(("of", "name", "meaning", "why without effect"), [list(row.values()) for row in rows])
    return 0
