"""Runs the Python and the shell commands of the README, and produces and consumes a file of 100
MB."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli import shown
from cli.shown import ADDRESS, ROOT, Shell
from spark.spark_home import environment, quick_java

README = ROOT / "README.md"


def blocks(language: str, section: str = "") -> list[str]:
    text = README.read_text()
    if section:
        text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [block.text for block in shown.blocks(text) if block.kind == language]


def test_there_is_python_to_run():
    assert len(blocks("python")) >= 2


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.split("\n")[0])
def test_the_python_prints_what_it_says(block: str, our_address: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", block.replace(ADDRESS, our_address)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = re.findall(r"^ *print\(.*\)  # (.*)$", block, re.M)
    assert told and done.stdout.splitlines() == told


def test_first_records(our_address: str, tmp_path: Path):
    [block] = blocks("sh", "First records")
    printed = Shell(tmp_path, our_address).run(block).splitlines()
    assert printed[0] == "hello, world"
    assert printed[1] == "topic news: 1 partition"


def test_every_shell_block_is_run_by_a_test():
    sections = [blocks("sh", name) for name in ("First records", "A plugin", "Spark")]
    assert sum(sections, []) == blocks("sh")


def test_a_plugin(tmp_path: Path):
    [block] = blocks("sh", "A plugin")
    assert "keep_ten.py" in Shell(tmp_path, ADDRESS).run(block).splitlines()


@pytest.mark.java
def test_a_load(our_address: str, tmp_path: Path):
    [block] = blocks("sh", "Spark")
    # Spark's JVM starts with less CPU; what is run stays the same.
    quick = environment() | {"JAVA_TOOL_OPTIONS": quick_java()}
    shell = Shell(tmp_path, our_address, **quick)
    shell.run("echo hello | barnabas produce news\n")
    printed = shell.run(block)
    assert printed.splitlines()[-1].split()[0] == "news"
    assert list((tmp_path / "lake").rglob("*.parquet"))


def test_a_file_of_100_mb_comes_back_byte_for_byte(our_address: str, tmp_path: Path):
    words = (
        b"appended a batch of 100 records to a partition and answered the producer with its offset"
    )
    lines = b"".join(b"%d: INFO %b\n" % (number, words) for number in range(40_000))
    (tmp_path / "big.log").write_bytes(lines * (100_000_000 // len(lines) + 1))
    block = "barnabas produce big big.log --codec zstd\nbarnabas consume big --end | cmp - big.log"
    Shell(tmp_path, our_address).run(block)


def test_the_two_commands_that_set_it_up():
    text = README.read_text()
    assert (
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/barnabas start" in text
    ) and "`bash tests/run`" in text


def test_the_files_it_names_exist():
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
