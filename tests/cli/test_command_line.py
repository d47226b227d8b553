"""Usage errors in one line with a suggestion; options in any place; completion."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cli.conftest import COMMAND, run_command
from cli.test_cli_manners import imported_by


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("topic", "there is no command 'topic'. Did you mean topics?"),
        ("help topc", "Did you mean topics?"),
        ("xyzzy", "there is no command 'xyzzy'. `barnabas help` lists them."),
        ("topics", "ACTION is missing: list, create, describe, alter, delete."),
        ("topics lst", "Did you mean list?"),
        ("topics create", "TOPIC is missing. See `barnabas topics create --help`."),
        ("topics create a --partitons 3", "no option --partitons. Did you mean --partitions?"),
        ("produce a --codec zst", "Did you mean zstd?"),
        ("consume a b", "unexpected argument 'b'"),
        ("start --confg=x", "there is no option --confg. Did you mean --config?"),
    ],
)
def test_usage_error_is_one_line_with_a_suggestion(words: str, said: str):
    """Ten lines of usage were printed, and nothing was suggested."""
    got = run_command(*words.split())
    assert got.status == 2 and got.out == b""
    assert got.err.startswith("barnabas: ") and said in got.err
    assert len(got.err.splitlines()) == 1


def test_options_between_topic_and_file(our_address: str, tmp_path):
    """They were "unrecognized arguments"."""
    file = tmp_path / "lines"
    file.write_bytes(b"k:v\n")
    at = ("--bootstrap-server", our_address)
    got = run_command("produce", *at, "between", "--key-separator", ":", str(file), "--json")
    assert got.status == 0, got.err
    got = run_command("consume", "--end", "between", "--key", *at)
    assert got.out == b"k\tv\n"
    got = run_command("topics", "create", "mid-1", "--partitions", "2", "mid-2", *at)
    assert got.status == 0, got.err
    found = run_command("topics", "list", *at).text
    assert "mid-1" in found and "mid-2" in found


def test_an_argument_behind_two_hyphens_is_no_option(tmp_path):
    got = run_command("plugins", "new", "--into", str(tmp_path), "--", "-x")
    assert got.status == 1 and "'-x' is not a valid name" in got.err


def test_help_is_a_command():
    assert run_command("help").out == run_command("--help").out
    assert run_command("help", "topics").out == run_command("topics", "--help").out
    wanted = run_command("topics", "create", "--help").out
    assert run_command("help", "topics", "create").out == wanted


def test_a_start_pays_for_neither_suggestions_nor_completion():
    modules = imported_by(
        "from barnabas.cli import main\n"
        "try: main(['start', '--set', 'log.dirs='])\n"
        "except SystemExit: pass"
    )
    assert "barnabas.cli.parser" in modules
    assert not modules & {"difflib", "argcomplete", "barnabas.cli.completion", "click"}


@pytest.mark.skipif(not importlib.util.find_spec("argcomplete"), reason="needs argcomplete")
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("barnabas to", {"topics"}),
        ("barnabas topics ", {"list", "create", "describe", "alter", "delete"}),
        ("barnabas topics create --part", {"--partitions"}),
        ("barnabas produce --codec z", {"zstd"}),
        ("barnabas help to", {"topics"}),
        ("barnabas help topics cr", {"create"}),
        ("barnabas completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_completion(line: str, wanted: set[str], tmp_path):
    answer = tmp_path / "answer"
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run([COMMAND], env=environment, check=True, stdout=subprocess.DEVNULL, timeout=30)
    found = {word.strip() for word in answer.read_text().split("\n")}
    assert wanted <= found


# What each shell does when somebody types `barnabas topics cr` and Tab; it prints the words.
TAB = {
    "bash": """
        eval "$(barnabas completion bash)"
        COMP_WORDS=(barnabas topics cr) COMP_CWORD=2 COMP_LINE="barnabas topics cr"
        COMP_POINT=18 COMP_TYPE=9
        _python_argcomplete barnabas cr topics
        printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "zsh": """
        autoload -U compinit && compinit -D -u
        eval "$(barnabas completion zsh)"
        _describe() { print -l -- "${completions[@]}" }  # it works inside of a line editor only
        BUFFER="barnabas topics cr" CURSOR=18 words=(barnabas topics cr)
        _python_argcomplete
    """,
    "fish": """
        barnabas completion fish | source
        complete -C "barnabas topics cr"
    """,
}


@pytest.mark.skipif(not importlib.util.find_spec("argcomplete"), reason="needs argcomplete")
@pytest.mark.parametrize("shell", TAB)
def test_a_shell_completes_by_the_function_that_the_command_prints(shell: str):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [shell, "-c", TAB[shell]],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr
    words = [line.split("\t")[0].split(":")[0].strip() for line in done.stdout.splitlines()]
    assert [word for word in words if word] == ["create"], done.stderr


@pytest.mark.skipif(not importlib.util.find_spec("argcomplete"), reason="needs argcomplete")
@pytest.mark.parametrize(
    ("shell", "said"),
    [
        ("bash", "complete -o nospace"),
        ("zsh", "compdef _python_argcomplete barnabas"),
        ("fish", "complete --command barnabas"),
    ],
)
def test_the_function_of_each_shell(shell: str, said: str):
    assert said in run_command("completion", shell).text


def test_completion_without_its_package_says_what_to_install(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'argcomplete' else real(name, *a)\n"
    )
    got = run_command("completion", "bash", PYTHONPATH=str(tmp_path))
    assert got.status == 1 and got.out == b""
    assert got.err == (
        "barnabas: completion needs argcomplete: pip install 'barnabas[completion]'.\n"
    )
