"""`barnabas security`: makes what a protected broker needs, in one directory.

| file | mode | what it is |
|---|---|---|
| ca.pem, ca-key.pem | 0644, 0600 | a certificate authority; clients trust ca.pem |
| broker.pem | 0600 | the broker's key and certificate |
| server.properties | 0600 | starts the broker with one SASL_SSL listener and access rules |
| client.properties | 0600 | logs in as the administrator; each of Kafka's tools takes it |

The administrator is a SCRAM user in the log directory of a broker that does not run, and the only
super user: `barnabas acls` permits others what they need. Nothing is overwritten; when a step
fails, the files made before it are removed.
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

from barnabas.cli.connecting import json_lines_option
from barnabas.cli.output import did, fail, say, table
from barnabas.cli.parser import settings_option
from barnabas.cli.stopped_broker import errors_of_one_line, stopped_users
from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.access import AUTHORIZER, SUPER_USERS
from barnabas.config.listeners import LOOPBACK, is_loopback
from barnabas.config.properties import parse_properties
from barnabas.config.providers import read_limited

DIRECTORY = "security"
PORT = 9092
LISTENER = "SAFE"
MECHANISM = "SCRAM-SHA-512"
ADMIN = "admin"
PASSWORD_BYTES = 24  # of randomness
HOST_COUNT_MAX = 100
CA, CA_KEY, BROKER, SERVER, CLIENT = (
    "ca.pem",
    "ca-key.pem",
    "broker.pem",
    "server.properties",
    "client.properties",
)
MODES = {CA: 0o644, CA_KEY: 0o600, BROKER: 0o600, SERVER: 0o600, CLIENT: 0o600}
AUTHORIZER_CLASS = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
# The settings of --config that the new listener replaces.
REPLACED = (
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "host.name",
    "port",
    "advertised.host.name",
    "advertised.port",
    "allow.unauthenticated.remote",
)
PROTECTED = ("ssl.", "sasl.", "listener.name.", AUTHORIZER, SUPER_USERS)

EPILOG = """\
examples:
  barnabas security init                                  a protected broker on 127.0.0.1:9092
  barnabas security init --host kafka1.example.com        one that other hosts can reach
  barnabas security init --config etc/server.properties   with the other settings of this file
  barnabas start --config security/server.properties
  kafka-topics.sh --list --bootstrap-server kafka1.example.com:9092 \\
      --command-config security/client.properties
  barnabas acls add --help                                what other users may do
  barnabas security renew                                 a new certificate before the old expires
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    init = _action(actions, "init", "make certificates, an administrator and a safe listener")
    init.add_argument(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="a DNS name or an IP address by which clients reach the broker; the first one is"
        "\nadvertised; may be repeated. Without it the broker listens on 127.0.0.1.",
    )
    init.add_argument(
        "--port", metavar="N", type=int, default=PORT, help=f"of the listener ({PORT})"
    )
    init.add_argument("--admin", metavar="NAME", default=ADMIN, help=f"its user name ({ADMIN})")
    init.add_argument("--config", metavar="FILE", help="a server.properties to take settings from")
    settings_option(init, "a setting for the new server.properties")
    _action(actions, "renew", "make a new certificate for the broker by the same authority")


def _action(
    actions: argparse._SubParsersAction, name: str, summary: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--to",
        metavar="DIR",
        default=DIRECTORY,
        help=f"the directory of the files ({DIRECTORY})",
    )
    json_lines_option(parser)
    return parser


@errors_of_one_line
def run(arguments: argparse.Namespace) -> int:
    try:
        return _renew(arguments) if arguments.action == "renew" else _init(arguments)
    except ModuleNotFoundError as error:
        if error.name != "cryptography":
            raise
        return fail("the package cryptography is missing. Run: pip install 'barnabas[tls]'")
    except OSError as error:
        return fail(f"{error.filename}: {error.strerror}.")


def _init(arguments: argparse.Namespace) -> int:
    from barnabas.tls.authority import Authority

    if not 1 <= arguments.port <= 65535:
        raise ConfigError(f"--port {arguments.port}: a port is a number from 1 to 65535.")
    if ";" in arguments.admin:
        raise ConfigError(f"--admin {arguments.admin}: {SUPER_USERS} separates names by `;`.")
    hosts = _hosts(arguments.host)
    directory = Path(arguments.to).absolute()
    settings = _settings(arguments, directory)
    authority = Authority.new(f"barnabas CA {secrets.token_hex(4)}")
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    files = {
        CA: authority.certificate_pem,
        CA_KEY: authority.key_pem,
        BROKER: authority.broker_pem(hosts),
        SERVER: _properties(settings),
        CLIENT: _properties(_client_settings(directory, arguments.admin, password)),
    }
    made = _write_new(directory, files)
    try:
        _set_administrator(directory / SERVER, arguments.admin, password)
    except BaseException:
        for path in made:
            path.unlink()
        raise
    _report(arguments, directory, hosts[0])
    return 0


def _renew(arguments: argparse.Namespace) -> int:
    from barnabas.tls.authority import Authority, expires, hosts_of

    directory = Path(arguments.to).absolute()
    paths = [directory / name for name in (CA, CA_KEY, BROKER)]
    ca, key, broker = (path.read_bytes() for path in paths)
    renewed = Authority.read(ca, key).broker_pem(hosts_of(broker))
    beside = directory / f"{BROKER}.new"
    _write(beside, renewed, MODES[BROKER])
    os.replace(beside, directory / BROKER)  # the broker reads it whole, before or after
    did(
        arguments.json,
        f"{directory / BROKER}: valid until {expires(renewed):%Y-%m-%d}. A running broker reads the"
        " file within a second; clients that are connected go on.",
        file=str(directory / BROKER),
        valid_until=expires(renewed).isoformat(),
    )
    return 0


def _hosts(given: Sequence[str]) -> list[str]:
    """Returns the names in the broker's certificate; the first one is advertised."""
    if len(given) > HOST_COUNT_MAX:
        raise ConfigError(f"--host: {len(given)} names, {HOST_COUNT_MAX} at most.")
    local = ["localhost", LOOPBACK, "::1"]
    if not given:
        return list(dict.fromkeys([LOOPBACK, *local]))
    return list(dict.fromkeys([*given, socket.gethostname(), *local]))


def _settings(arguments: argparse.Namespace, directory: Path) -> dict[str, str]:
    """Returns the lines of the new server.properties. Raises ConfigError."""
    taken = dict[str, str]()
    if arguments.config:
        for row in parse_properties(read_limited(arguments.config), arguments.config):
            if row.key.startswith(PROTECTED):
                raise ConfigError(
                    f"{arguments.config}: {row.key} protects a broker already. Remove it, or"
                    " change the file by hand."
                )
            taken[row.key] = row.value
    kept = {key: value for key, value in taken.items() if key not in REPLACED}
    for setting in arguments.settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: not KEY=VALUE.")
        kept[key.strip()] = value.strip()
    host = arguments.host[0] if arguments.host else LOOPBACK
    bound = LOOPBACK if is_loopback(host) else "0.0.0.0"
    name = LISTENER.lower()
    return kept | {
        "listeners": f"{LISTENER}://{bound}:{arguments.port}",
        "advertised.listeners": f"{LISTENER}://{_bracketed(host)}:{arguments.port}",
        "listener.security.protocol.map": f"{LISTENER}:SASL_SSL",
        "inter.broker.listener.name": LISTENER,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / BROKER),
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.{name}.{MECHANISM.lower()}.sasl.jaas.config": f"{LOGIN_MODULE} required;",
        AUTHORIZER: AUTHORIZER_CLASS,
        SUPER_USERS: f"User:{arguments.admin}",
    }


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _client_settings(directory: Path, user: str, password: str) -> dict[str, str]:
    quoted = user.replace("\\", "\\\\").replace('"', '\\"')
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / CA),
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{LOGIN_MODULE} required username="{quoted}" password="{password}";',
    }


def _properties(settings: dict[str, str]) -> bytes:
    """Returns settings in the grammar of java.util.Properties."""
    lines = ["# made by `barnabas security init`"]
    for key, value in settings.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        lines.append(f"{key}={escaped}")
    return "\n".join([*lines, ""]).encode()


def _write_new(directory: Path, files: dict[str, bytes]) -> list[Path]:
    """Writes all files or none. Raises ConfigError when one of them exists."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o755)
    present = [name for name in files if (directory / name).exists()]
    if present:
        raise ConfigError(
            f"{directory}: {', '.join(present)} is there already, and nothing was changed. Give"
            " another directory with --to, or `barnabas security renew` for a new certificate."
        )
    made: list[Path] = []
    try:
        for name, data in files.items():
            made.append(directory / name)
            _write(directory / name, data, MODES[name])
    except OSError:
        for path in made:
            path.unlink(missing_ok=True)
        raise
    return made


def _write(path: Path, data: bytes, mode: int) -> None:
    """Writes a file, which has its mode before it has its contents."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _set_administrator(server_file: Path, name: str, password: str) -> None:
    from barnabas.security.new_user import new_user

    config = BrokerConfig.load(str(server_file), [])
    with stopped_users(config) as users:
        users.store(new_user(name, MECHANISM, password))


def _report(arguments: argparse.Namespace, directory: Path, host: str) -> None:
    address = f"{_bracketed(host)}:{arguments.port}"
    if arguments.json:
        did(
            True,
            "",
            directory=str(directory),
            user=arguments.admin,
            bootstrap_server=address,
            files=list(MODES),
        )
        return
    table(
        ("file", "what it is"),
        [
            (str(directory / CA), "the authority's certificate: give it to every client"),
            (str(directory / CA_KEY), "its key: keep it secret, best on another machine"),
            (str(directory / BROKER), "the broker's key and certificate"),
            (str(directory / SERVER), "the broker's settings"),
            (str(directory / CLIENT), f"logs in as {arguments.admin}: keep it secret"),
        ],
    )
    say(
        f"\nbarnabas start --config {directory / SERVER}\n"
        f"barnabas topics list -b {address} --command-config {directory / CLIENT}\n"
        f"kafka-topics.sh --list --bootstrap-server {address} --command-config"
        f" {directory / CLIENT}"
    )
