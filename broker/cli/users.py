"""`barnabas users`: lists, sets and removes SCRAM users of a broker, or of one that does not run.

The first user of a cluster cannot be set by a client, because a client must log in first: with
--config or --set the command opens the log directory of a broker that does not run.
"""

import argparse
import getpass
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.cli.connecting import (
    actions_of,
    cluster_of,
    json_lines_option,
    json_option,
    speaks_to_broker,
)
from barnabas.cli.output import did, fail, json_document, table
from barnabas.cli.parser import settings_option
from barnabas.cli.stopped_broker import errors_of_one_line, stopped_users
from barnabas.client.scram_users import (
    NewCredential,
    delete_credentials,
    describe_users,
    store_credentials,
)
from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.providers import check_private

if TYPE_CHECKING:
    from barnabas.security.new_user import NewUser

DEFAULT = "SCRAM-SHA-512"
PASSWORD_BYTES_MAX = 4096
COLUMNS = ("user", "mechanism", "iterations")

EPILOG = """\
The password comes from --password-file (`-` for standard input), or from the terminal. It does not
leave this command: the broker gets and stores what SCRAM derives from it.
With --config or --set the command changes the directory of a broker that does not run, as the first
user of a cluster needs it.

examples:
  barnabas users list
  barnabas users add alice -b kafka1:9092 --command-config security/client.properties
  barnabas users remove alice --mechanism SCRAM-SHA-256
  barnabas users add admin --config etc/server.properties          the broker does not run
  barnabas users add admin --password-file secret --set log.dirs=/srv/barnabas
  barnabas users add --config etc/server.properties --add-scram \\
      'SCRAM-SHA-256=[name=admin,password=...]'                     as kafka-storage
"""


def configure(parser: argparse.ArgumentParser) -> None:
    action = actions_of(parser, EPILOG, ACTIONS)
    found = action("list", "list users that have SCRAM credentials")
    found.add_argument("name", metavar="NAME", nargs="?", help="only this user")
    json_option(found)
    add = action("add", "set the SCRAM credential of a user")
    add.add_argument("name", metavar="NAME", nargs="?", help="the user")
    add.add_argument("--iterations", metavar="N", type=int, help="4096 (the default) to 16384")
    add.add_argument("--password-file", metavar="FILE", help="its first line is the password")
    add.add_argument(
        "--add-scram",
        metavar="TEXT",
        action="append",
        default=[],
        help="a user in the form of kafka-storage; may be repeated",
    )
    json_lines_option(add)
    remove = action("remove", "remove the SCRAM credentials of a user, who cannot log in any more")
    remove.add_argument("name", metavar="NAME", help="the user")
    json_lines_option(remove)
    for sub, default in ((add, DEFAULT), (remove, "all that the user has")):
        sub.add_argument("--mechanism", metavar="NAME", help=f"SCRAM-SHA-256 or -512 ({default})")
    for sub in (found, add, remove):
        sub.add_argument(
            "--config", metavar="FILE", help="server.properties of a broker that does not run"
        )
        settings_option(sub, "a setting of a broker that does not run; overrides that of the file")


@errors_of_one_line
@speaks_to_broker
def run(arguments: argparse.Namespace) -> int:
    return int(arguments.act(arguments))


def _stopped(arguments: argparse.Namespace) -> BrokerConfig | None:
    """Returns the settings of the broker that does not run; None: a broker runs. Raises
    ConfigError."""
    if arguments.config is None and not arguments.settings:
        return None
    return BrokerConfig.load(arguments.config, arguments.settings)


def _list(arguments: argparse.Namespace) -> int:
    rows = _found(arguments, arguments.name)
    if arguments.json:
        json_document([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        table(COLUMNS, rows, empty="no users")
    return 0


def _found(arguments: argparse.Namespace, name: str | None) -> Sequence[tuple[str, str, int]]:
    """Returns users, mechanisms and iterations."""
    if (config := _stopped(arguments)) is not None:
        with stopped_users(config) as users:
            return users.found(name)
    from barnabas.security.scram import TYPES

    with cluster_of(arguments) as cluster:
        return [
            (row.user, TYPES.get(row.mechanism, str(row.mechanism)), row.iterations)
            for row in describe_users(cluster, name)
        ]


def _add(arguments: argparse.Namespace) -> int:
    from barnabas.security.new_user import parse_scram

    config = _stopped(arguments)
    # All are read before the first is set.
    wanted = [parse_scram(text) for text in arguments.add_scram]
    if arguments.name is not None:
        wanted.append(_named(arguments))
    if not wanted:
        return fail("NAME is missing. Give the name of a user, or --add-scram.")
    if config is None:
        with cluster_of(arguments) as cluster:
            store_credentials(cluster, map(_credential, wanted))
        for user in wanted:
            _did_set(arguments, user)
        return 0
    with stopped_users(config) as users:
        for user in wanted:
            users.store(user)
            _did_set(arguments, user)
    return 0


def _did_set(arguments: argparse.Namespace, user: "NewUser") -> None:
    did(
        arguments.json,
        f"set the {user.mechanism} credential of user {user.name}",
        user=user.name,
        mechanism=user.mechanism,
        iterations=user.iterations,
    )


def _credential(user: "NewUser") -> NewCredential:
    return NewCredential(
        user.name, _code(user.mechanism), user.iterations, user.salt, user.salted_password
    )


def _code(mechanism: str) -> int:
    from barnabas.security.scram import TYPES

    return next(code for code, name in TYPES.items() if name == mechanism)


def _remove(arguments: argparse.Namespace) -> int:
    from barnabas.security.scram import HASHES

    if arguments.mechanism not in (None, *HASHES):
        return fail(f"--mechanism {arguments.mechanism}: use {' or '.join(HASHES)}.")
    known = [mechanism for _, mechanism, _ in _found(arguments, arguments.name)]
    wanted = [each for each in known if arguments.mechanism in (None, each)]
    if not wanted:
        kind = arguments.mechanism or "SCRAM"
        return fail(
            f"user {arguments.name} has no {kind} credential. `barnabas users list` shows the"
            " users."
        )
    if (config := _stopped(arguments)) is not None:
        with stopped_users(config) as users:
            for mechanism in wanted:
                users.delete(arguments.name, mechanism)
    else:
        with cluster_of(arguments) as cluster:
            delete_credentials(cluster, arguments.name, map(_code, wanted))
    for mechanism in wanted:
        did(
            arguments.json,
            f"removed the {mechanism} credential of user {arguments.name}",
            user=arguments.name,
            mechanism=mechanism,
        )
    return 0


ACTIONS = {"list": _list, "add": _add, "remove": _remove}


def _named(arguments: argparse.Namespace) -> "NewUser":
    from barnabas.security.new_user import new_user

    return new_user(
        arguments.name,
        arguments.mechanism or DEFAULT,
        _password(arguments.password_file),
        iterations=arguments.iterations,
    )


def _password(path: str | None) -> str:
    """Returns the password of a file, or of the terminal. Raises ConfigError."""
    if path is None and not sys.stdin.isatty():
        raise ConfigError("the password is missing. Give --password-file FILE, or `-` for a pipe.")
    if path is None:
        password = getpass.getpass("password: ")
        if getpass.getpass("again: ") != password:
            raise ConfigError("the two passwords differ. Nothing was changed.")
        return password
    if path == "-":
        return sys.stdin.readline(PASSWORD_BYTES_MAX).rstrip("\r\n")
    try:
        check_private(path, "a password")
        with open(path, encoding="utf-8") as file:
            return file.readline(PASSWORD_BYTES_MAX).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"the password file {path} cannot be read: {reason}.") from None
