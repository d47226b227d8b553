"""`barnabas users`: sets SCRAM users in the log directory of a broker that does not run.

The first user of a cluster cannot be set by a client, because a client must log in first."""

import argparse
import getpass
import sys
from typing import Any

from barnabas.cli.connecting import json_lines_option
from barnabas.cli.output import did, fail
from barnabas.cli.stopped_broker import errors_of_one_line, settings_option, store_users
from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.providers import check_private

DEFAULT = "SCRAM-SHA-512"
PASSWORD_BYTES_MAX = 4096

EPILOG = """\
The broker must not run; `kafka-configs --alter --entity-type users` changes users of a running one.
The password comes from --password-file (`-` for standard input), or from the terminal. The broker
stores the keys that SCRAM derives from it, not the password.

examples:
  barnabas users add admin --config etc/server.properties
  barnabas users add admin --password-file secret --set log.dirs=/srv/barnabas
  barnabas users add --add-scram 'SCRAM-SHA-256=[name=admin,password=...]'    as kafka-storage
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser(
        "add",
        help="set the SCRAM credential of a user of a stopped broker",
        description="set the SCRAM credential of a user of a stopped broker",
        epilog=EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add.add_argument("name", metavar="NAME", nargs="?", help="the user")
    add.add_argument("--mechanism", metavar="NAME", help=f"SCRAM-SHA-256 or -512 ({DEFAULT})")
    add.add_argument("--iterations", metavar="N", type=int, help="4096 (the default) to 16384")
    add.add_argument("--password-file", metavar="FILE", help="its first line is the password")
    add.add_argument(
        "--add-scram",
        metavar="TEXT",
        action="append",
        default=[],
        help="a user in the form of kafka-storage; may be repeated",
    )
    add.add_argument("--config", metavar="FILE", help="the broker's server.properties file")
    settings_option(add, "a setting of the broker; overrides that of the file")
    json_lines_option(add)


@errors_of_one_line
def run(arguments: argparse.Namespace) -> int:
    from barnabas.security.new_user import parse_scram

    config = BrokerConfig.load(arguments.config, arguments.settings)
    # All are read before the first is set.
    wanted = [parse_scram(text) for text in arguments.add_scram]
    if arguments.name is not None:
        wanted.append(_named(arguments))
    if not wanted:
        return fail("NAME is missing. Give the name of a user, or --add-scram.")
    for user in store_users(config, wanted):
        did(
            arguments.json,
            f"set the {user.mechanism} credential of user {user.name}",
            user=user.name,
            mechanism=user.mechanism,
            iterations=user.iterations,
        )
    return 0


def _named(arguments: argparse.Namespace) -> Any:
    from barnabas.security.new_user import new_user

    return new_user(
        arguments.name,
        arguments.mechanism or DEFAULT,
        _password(arguments.password_file),
        iterations=arguments.iterations,
    )


def _password(path: str | None) -> str:
    """Raises ConfigError."""
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
