"""Types of command line arguments that several commands have."""

import argparse


def positive(text: str) -> int:
    """Returns a whole number above 0. Raises ArgumentTypeError, ValueError."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give a number above 0")
    return number
