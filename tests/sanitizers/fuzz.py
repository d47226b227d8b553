"""Looks for bytes that break a parser of parsers.py, guided by the coverage of Python and C code.

    tests/sanitizers/run fuzz [OPTIONS OF LIBFUZZER]

`run` builds what this needs and names the folder of the corpus. The first byte of an input chooses
the parser. Bytes that end in a sanitizer's report, an error that is not the parser's own, or more
than 20 seconds are kept as a file crash-* or timeout-* beside the corpus.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["barnabas"]):
    from sanitizers.parsers import NAMES, Parsers, seeds


def main() -> None:
    corpus = Path(sys.argv[1])
    corpus.mkdir(exist_ok=True)
    for number, (name, data) in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(bytes([NAMES.index(name)]) + data)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=corpus.parent))
        methods = Parsers(Path(folder), stack).methods

        def one_input(data: bytes) -> None:
            if data:
                methods[data[0] % len(methods)](data[1:])

        atheris.Setup(sys.argv, one_input)
        atheris.Fuzz()  # ends the process


main()
