"""`barnabas plugins`: lists and describes installed plugins, creates a project for a new one, and
reloads those of a broker."""

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
from barnabas.client.admin import BROKER as BROKER_KIND
from barnabas.client.admin import SET, ConfigChange, Resource, alter_configs, describe_configs

RELOADS = "plugins.reloads"
HOOKS = ("interceptor", "retention", "partitioner", "encoder", "topic-policy")  # project_kinds.py

EPILOG = """\
An installed plugin runs when the configuration names it: plugins=NAME, options plugin.NAME.KEY.

  barnabas plugins list
  barnabas plugins list --plugin-path plugins       also those of the wheels in ./plugins
  barnabas plugins describe json-schema
  barnabas plugins new redact            a project in ./redact, ready for pip install -e
  barnabas plugins new keep-ten --hook retention
  barnabas plugins reload                the broker loads new code and new options
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=EPILOG,
            formatter_class=argparse.RawTextHelpFormatter,
        )

    listing = add("list", "list the installed plugins")
    json_option(listing)
    _path_option(listing)
    listing.set_defaults(act=_list)
    one = add("describe", "describe a plugin, its hooks and its options")
    one.add_argument("name", metavar="NAME")
    json_option(one)
    _path_option(one)
    one.set_defaults(act=_describe)
    new = add("new", "create a project for a new plugin")
    new.add_argument("name", metavar="NAME", help="lower-case letters, digits and hyphens")
    new.add_argument(
        "--hook",
        choices=HOOKS,
        default=HOOKS[0],
        help=f"the kind of the plugin: {', '.join(HOOKS)} ({HOOKS[0]})",
    )
    new.add_argument("--into", metavar="DIR", default=".", help="default: this directory")
    json_lines_option(new)
    new.set_defaults(act=_new)
    reload = add("reload", "load the plugins of a running broker again")
    json_lines_option(reload)
    connection_options(reload)
    reload.set_defaults(act=_reload)


def _path_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plugin-path", metavar="DIR", help="a directory of wheels with plugins")


def run(arguments: argparse.Namespace) -> int:
    if getattr(arguments, "plugin_path", None) is not None:
        from barnabas.hooks.plugin import CannotLoad
        from barnabas.hooks.wheels import add_wheels

        try:
            add_wheels(arguments.plugin_path)
        except CannotLoad as error:
            return fail(str(error))
    return int(arguments.act(arguments))


def _list(arguments: argparse.Namespace) -> int:
    from barnabas.hooks.loading import author_of, installed, name_taken, summary
    from barnabas.hooks.plugin import CannotLoad

    rows, problems = [], []
    plugins = installed()
    for found in plugins:
        try:
            what = summary(author_of(found))
        except CannotLoad as error:
            what = str(error)
        row = {
            "name": found.name,
            "version": found.version,
            "distribution": found.distribution,
            "what": what,
        }
        if problem := name_taken(found, plugins):
            row["problem"] = problem
            problems.append(problem)
        rows.append(row)
    if arguments.json:
        json_document(rows)
    else:
        table(("name", "version", "from", "what"), [list(row.values())[:4] for row in rows])
        for problem in dict.fromkeys(problems):
            say(problem)
    return 0


def _describe(arguments: argparse.Namespace) -> int:
    from barnabas.hooks.options import BadOptions
    from barnabas.hooks.plugin import CannotLoad

    try:
        said = _said(arguments.name)
    except (CannotLoad, BadOptions) as error:
        return fail(str(error))
    if arguments.json:
        json_document(said)
        return 0
    print(f"{said['name']} {said['version']} ({said['target']}, of {said['distribution']})\n")
    print(said["text"])
    print(f"\nhooks: {', '.join(said['hooks']) or 'none'}\n")
    table(
        ("option", "kind", "default", "meaning"),
        [
            (f"plugin.{said['name']}.{row['name']}", row["kind"], row["default"], row["meaning"])
            for row in said["options"]
        ],
    )
    return 0


def _said(name: str) -> dict[str, Any]:
    import inspect

    from barnabas.hooks import specs
    from barnabas.hooks.loading import author_of, find
    from barnabas.hooks.options import COMMON, REQUIRED, schema_of

    found = find(name)
    author = author_of(found)
    module = inspect.getmodule(author)
    hooks = [hook for hook in specs.names() if hasattr(author, hook)]
    return {
        "name": found.name,
        "version": found.version,
        "target": found.target,
        "distribution": found.distribution,
        "text": (inspect.getdoc(module) or inspect.getdoc(author) or "").strip(),
        "hooks": hooks,
        "options": [
            {
                "name": key,
                "kind": option.kind,
                "default": "(must be set)" if option.default is REQUIRED else str(option.default),
                "meaning": option.meaning,
            }
            for key, option in {**schema_of(author), **COMMON}.items()
        ],
    }


def _new(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from barnabas.hooks.project import BadName, write_project

    try:
        made = write_project(arguments.name, Path(arguments.into), arguments.hook)
    except BadName as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"{error.filename}: {error.strerror}. Choose another place with --into.")
    did(
        arguments.json,
        f"made {made}; next: pip install -e '{made}[test]' && pytest {made}",
        plugin=arguments.name,
        hook=arguments.hook,
        directory=str(made),
    )
    return 0


@speaks_to_broker
def _reload(arguments: argparse.Namespace) -> int:
    resource = Resource(BROKER_KIND, "")
    with cluster_of(arguments) as cluster:
        found = describe_configs(cluster, resource)
        before = next((row.value for row in found if row.name == RELOADS), "0")
        alter_configs(cluster, resource, [ConfigChange(SET, RELOADS, str(int(before or 0) + 1))])
    did(arguments.json, "the broker has loaded its plugins again", reloaded=True)
    return 0
