"""Completion in bash, zsh and fish, by argcomplete: `pip install 'barnabas[completion]'`.

`barnabas completion SHELL` prints the function that the shell needs. The function sets COMP_LINE
and calls the command, which then answers with the possible next words (`complete`).
"""

import argparse
import importlib.util
import os
from collections.abc import Callable, Collection

from barnabas.cli.connecting import json_option
from barnabas.cli.output import fail, json_document

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "barnabas"

EPILOG = """\
It needs the package argcomplete: pip install 'barnabas[completion]'.

examples:
  barnabas completion bash > ~/.local/share/bash-completion/completions/barnabas
  barnabas completion zsh > ~/.zfunc/_barnabas        with ~/.zfunc in fpath
  barnabas completion fish > ~/.config/fish/completions/barnabas.fish
  eval "$(barnabas completion bash)"                  in this shell only
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("argcomplete") is None:
        return fail("completion needs argcomplete: pip install 'barnabas[completion]'.")
    import argcomplete

    script = argcomplete.shellcode([PROGRAM], shell=arguments.shell)
    if arguments.json:
        json_document({"shell": arguments.shell, "script": script})
    else:
        print(script)
    return 0


def complete(
    names: Collection[str], configure: Callable[[str, argparse.ArgumentParser], None]
) -> None:
    """Prints the possible next words and ends the process. Returns when argcomplete is not
    installed. `names`: the commands; `configure` adds the arguments of one to its parser."""
    try:
        import argcomplete
    except ImportError:
        return
    # argparse's own parser: argcomplete reads it, and does not need what CommandParser adds.
    parser = argparse.ArgumentParser(prog=PROGRAM)
    parser.add_argument("--version", action="store_true")
    commands = parser.add_subparsers()
    words = os.environ.get("COMP_LINE", "").split()
    if words[1:2] == ["help"]:
        del words[1]
    for above in (commands, commands.add_parser("help").add_subparsers()):
        for name in names:
            command = above.add_parser(name)
            if len(words) > 1 and words[1] == name:
                configure(name, command)
    argcomplete.autocomplete(parser)
