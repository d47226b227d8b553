"""Pages of docs/: every link leads to a file, the index lists every page. test_pages.py runs their
blocks."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
SECURITY = sorted((ROOT / "docs" / "security").glob("*.md"))
TOP = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:broker|cext|plugins|clients|tests|bench|etc)/[\w./-]+\.\w+)`")


def broken(page: Path, text: str) -> list[str]:
    """Links and names of files that do not exist."""
    links = [link for link in LINK.findall(text) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    return missing + [name for name in FILE.findall(text) if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", [*PAGES, *SECURITY, *TOP], ids=str)
def test_links_and_names_of_files_lead_somewhere(page: Path):
    assert broken(page, page.read_text()) == []


def test_a_broken_link_is_seen():
    text = "[x](nowhere.md#part), `broker/nowhere.py`, [y](https://example.org/z)"
    assert broken(PAGES[0], text) == ["nowhere.md", "broker/nowhere.py"]


def test_the_index_lists_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    others = [page.name for page in PAGES if page.name != "README.md"]
    assert [name for name in others if f"({name})" not in index] == []


def test_the_diagram_is_what_its_script_draws():
    script = ROOT / "docs" / "diagrams" / "request_path.py"
    made = runpy.run_path(str(script))
    assert made["OUT"].read_text() == made["picture"](), f"python {script}"
    for name, (*_, lines) in made["BOXES"].items():
        for word in re.findall(r"[a-z_]+/[a-z_]+\b", lines[0]):
            found = [ROOT / "cext" / f"{word}.pyx", ROOT / "broker" / word]
            assert any(path.exists() for path in found), (name, word)
