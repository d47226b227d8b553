"""Usage errors in one line with a suggestion; options in any place; completion."""

import importlib.util
import os
import subprocess

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
