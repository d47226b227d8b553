"""Common parts of the commands that connect to a broker: options, and errors of one line."""

import argparse
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path

from barnabas.cli.output import fail
from barnabas.client import (
    BadSetting,
    CannotConnect,
    ClientError,
    Cluster,
    NoTls,
    NotSpokenByBroker,
)
from barnabas.errors import (
    InvalidReplicationFactor,
    KafkaError,
    MessageTooLarge,
    OffsetOutOfRange,
    RecordListTooLarge,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_S = 30.0

Command = Callable[[argparse.Namespace], int]

ADVICE: dict[type[Exception], str] = {
    NoTls: "Set ssl.truststore.location in the file of --command-config to trusted certificates.",
    CannotConnect: "Start a broker with `barnabas start`, or name one with --bootstrap-server.",
    NotSpokenByBroker: "Use a broker that supports it.",
    UnknownTopicOrPartition: "`barnabas topics describe` shows topics and their partitions.",
    OffsetOutOfRange: "`barnabas offsets` shows the first and the end offset of partitions.",
    TopicAlreadyExists: "Choose another name, or delete it with `barnabas topics delete`.",
    MessageTooLarge: "Raise the topic's max.message.bytes (`barnabas configs alter topic`).",
    RecordListTooLarge: "Raise the topic's segment.bytes (`barnabas configs alter topic`).",
    InvalidReplicationFactor: "Give at most the number of brokers.",
}


def connection_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("broker")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=BOOTSTRAP,
        help=f"any broker of the cluster; several with commas (default {BOOTSTRAP})",
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=positive_seconds,
        default=TIMEOUT_S,
        help=f"give up after this time without success (default {TIMEOUT_S:g})",
    )
    security_option(group)


def security_option(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties file of Kafka's clients; security.protocol, ssl.* and sasl.* are used",
    )


def security_settings(file: str | None) -> dict[str, str]:
    """Returns the security settings in a file of --command-config; none without a file. Raises
    BadSetting."""
    if file is None:
        return {}
    from barnabas.client.security_settings import FAMILIES
    from barnabas.config.settings import ConfigError

    try:
        found = properties_of(file)
    except OSError as error:
        raise BadSetting(f"cannot read {file}: {error.strerror}") from error
    except ConfigError as error:
        raise BadSetting(str(error)) from None
    return {name: value for name, value in found.items() if name.startswith(FAMILIES)}


def properties_of(file: str) -> dict[str, str]:
    """Returns the properties in a file. Raises OSError, ConfigError."""
    from barnabas.config.properties import parse_properties

    return {row.key: row.value for row in parse_properties(Path(file).read_bytes(), file)}


def json_option(parser: argparse.ArgumentParser, form: str = "one JSON document") -> None:
    parser.add_argument("--json", action="store_true", help=f"print {form}")


def json_lines_option(parser: argparse.ArgumentParser) -> None:
    """Adds --json to a command that prints each thing when it is done (see output.did)."""
    json_option(parser, "one line of JSON for each change")


def positive_seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError("give a number of seconds above 0")
    return seconds


def cluster_of(arguments: argparse.Namespace) -> Cluster:
    """Returns the client of the cluster that the arguments name. Raises BadAddress, BadSetting."""
    timeout_s, security = float(arguments.timeout), None
    if settings := security_settings(arguments.command_config):
        from barnabas.client.security_settings import parse_security

        security = parse_security(settings)
    return Cluster(
        arguments.bootstrap_server,
        timeout_s=timeout_s,
        connect_timeout_s=min(timeout_s, 10.0),
        answer_timeout_s=timeout_s + 10.0,
        security=security,
    )


def speaks_to_broker(command: Command) -> Command:
    """Wraps a command: it prints an error of the broker or the client in one line, and returns exit
    status 1."""

    @wraps(command)
    def run(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except KafkaError as error:
            text = str(error).rstrip(".")
            if f"({error.name})" not in text:  # the messages of some brokers contain the code
                text = f"{text} ({error.name})"
            return fail(_advised(error, text))
        except ClientError as error:
            return fail(_advised(error, str(error)))

    return run


def _advised(error: Exception, text: str) -> str:
    advice = next((line for kind, line in ADVICE.items() if isinstance(error, kind)), "")
    return f"{text.rstrip('.')}. {advice}"


def actions_of(
    parser: argparse.ArgumentParser, epilog: str, actions: Mapping[str, Callable[..., object]]
) -> Callable[..., argparse.ArgumentParser]:
    """Returns a function that adds an action to a command. It takes the action's name and summary;
    the action has the options of a connection (`connects`) and calls `actions[name]`."""
    parser.epilog = epilog
    parsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, summary: str, connects: bool = True) -> argparse.ArgumentParser:
        sub = parsers.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=epilog,
            formatter_class=argparse.RawTextHelpFormatter,
        )
        if connects:
            connection_options(sub)
        sub.set_defaults(act=actions[name])
        return sub

    return add
