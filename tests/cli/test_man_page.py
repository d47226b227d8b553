"""The manual page: it is what the parsers say, and man can show it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas.cli import COMMANDS
from barnabas.cli.man_page import _text, page

PAGE = Path(__file__).resolve().parents[2] / "etc" / "barnabas.1"


def test_the_page_is_what_the_parsers_say():
    assert PAGE.read_text() == page(), "python -m barnabas.cli.man_page > etc/barnabas.1"


def test_the_page_has_every_command_and_its_examples():
    text = page()
    for name in COMMANDS:
        assert f"\n.SS barnabas {_text(name)}\n" in text
    assert "\\fB\\-\\-partitions\\fR \\fI" in text and "barnabas topics create news" in text


def test_no_text_is_a_request_or_an_escape():
    assert _text(".TH \\fB 'x' --y") == "\\&.TH \\efB \\(aqx\\(aq \\-\\-y"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_no_complaint():
    words = ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", str(PAGE)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    assert "barnabas topics create [options]" in done.stdout
