"""`barnabas doctor HOST:PORT`: why clients cannot use a broker, one line with the remedy for each
finding. client/diagnosis.py looks for it."""

import argparse

from barnabas.cli.connecting import (
    json_option,
    positive_seconds,
    security_option,
    security_settings,
)
from barnabas.cli.output import fail, json_document
from barnabas.client import BadAddress, BadSetting, NoTls
from barnabas.client.cluster import parse_addresses

TIMEOUT_S = 5.0

EPILOG = """\
It takes the steps of a client: the name, the port, the protocol (plain text or TLS, with a login or
without), the certificate, the login, and the address that the broker gives to clients. Run it where
the client runs: another host may see other addresses. The exit status is 1 when there is a finding.
The broker counts one failed login.

examples:
  barnabas doctor 127.0.0.1:9092
  barnabas doctor kafka1.example.com:9093 --command-config client.properties
  barnabas doctor kafka1:9092 --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("address", metavar="HOST:PORT", help="as the client has it")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=positive_seconds,
        default=TIMEOUT_S,
        help=f"longest wait of each step (default {TIMEOUT_S:g})",
    )
    security_option(parser)
    json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    from barnabas.client.diagnosis import diagnose  # needs ssl

    try:
        addresses = parse_addresses(arguments.address)
        settings = security_settings(arguments.command_config)
        security = None
        if settings:
            from barnabas.client.security_settings import parse_security

            security = parse_security(settings)
    except (BadAddress, BadSetting, NoTls) as error:
        return fail(f"{str(error).rstrip('.')}.")
    if len(addresses) > 1:
        return fail("give one address: each may have a cause of its own.")
    [(host, port)] = addresses
    diagnosis = diagnose(host, port, security, arguments.timeout)
    if arguments.json:
        json_document(
            {
                "address": arguments.address,
                "facts": diagnosis.facts,
                "findings": [row._asdict() for row in diagnosis.findings],
            }
        )
    else:
        for fact in diagnosis.facts:
            print(_one_line(f"ok: {fact}"))
        for problem, remedy in diagnosis.findings:
            print(_one_line(f"problem: {problem}. {remedy}."))
    return 1 if diagnosis.findings else 0


def _one_line(text: str) -> str:
    """Returns a text without characters by which an unknown server could change a terminal."""
    return "".join(one if one.isprintable() else "?" for one in text)
