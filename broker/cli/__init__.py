"""The `barnabas` command."""

import argparse
import sys
from collections.abc import Sequence

from barnabas import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="barnabas", description="A Kafka-compatible broker.")
    parser.add_argument("--version", action="version", version=f"barnabas {__version__}")
    parser.parse_args(argv)
    parser.print_help(sys.stdout)
    return 0
