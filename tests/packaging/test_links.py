"""build/links of a checkout: mypy and editors find every module by its import name there."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = "import setup, sys, pathlib; setup.links_tree(pathlib.Path(sys.argv[1]))"
QUESTIONS = """
from barnabas.cext.codec.varint import encode_varint
from barnabas.clients.producer import config as producer_config
from barnabas.config.properties import parse_properties
from barnabas.plugins import delay

reveal_type(encode_varint)
reveal_type(parse_properties)
"""


def test_mypy_finds_modules_of_every_folder_through_the_links(tmp_path: Path) -> None:
    links = tmp_path / "links"
    subprocess.run([sys.executable, "-c", LINK, str(links)], cwd=ROOT, check=True, timeout=60)
    (tmp_path / "questions.py").write_text(QUESTIONS)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nmypy_path = {links}\nfollow_imports = silent\n")
    mypy = [sys.executable, "-m", "mypy", "--no-site-packages", "--cache-dir", "cache"]
    ran = subprocess.run(
        [*mypy, "questions.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    told = [line.partition("Revealed type is ")[2] for line in ran.stdout.splitlines()]
    told = [text for text in told if text]
    assert len(told) == 2 and "Any" not in "".join(told), ran.stdout + ran.stderr
    assert "bytes" in told[0] and "cannot find" not in ran.stdout.lower(), ran.stdout
