"""`make docs`: the manual as a site. Every page is in it, each link leads to a page or a heading,
and the search knows the pages."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="needs the extra docs: pip install -e '.[docs]'")
ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "etc" / "docs"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PART_OF_ANOTHER_PAGE = "spark_notes.md"


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going"]
    command += ["-c", str(CONFIGURATION), "-d", str(out / "read"), str(source), str(out / "site")]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("manual")
    ran = build(ROOT, out)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return out / "site"


class Page(HTMLParser):
    """The links and the anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {found["id"] or ""} if "id" in found else set()
        if tag == "a" and found.get("href"):
            self.links.append(found["href"] or "")


def test_every_page_is_in_the_site(site: Path):
    missing = [
        page.name
        for page in PAGES
        if page.name != PART_OF_ANOTHER_PAGE
        and not (site / page.relative_to(ROOT)).with_suffix(".html").exists()
    ]
    assert missing == []
    assert "docs/README.html" in (site / "index.html").read_text()


def test_each_link_leads_to_a_page_and_a_heading(site: Path):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            known = pages[target].anchors if target in pages else None
            if not target.exists() or (url.fragment and known and url.fragment not in known):
                broken.append(f"{path.name}: {link}")
    assert sum(len(page.links) for page in pages.values()) > 1000
    assert broken == []


def test_the_search_knows_titles_and_words(site: Path):
    index = re.search(r"setIndex\((.*)\)", (site / "searchindex.js").read_text(), re.S)
    assert index is not None
    found = json.loads(index[1])
    assert {"Troubleshooting", "Security"} <= set(found["titles"])
    assert "zookeep" in found["terms"], "the search has stems"


def test_the_side_bar_has_the_sections_of_the_index(site: Path):
    text = (site / "docs" / "README.html").read_text()
    captions = re.findall(r'class="caption"[^>]*><span[^>]*>([^<]+)', text)
    assert list(dict.fromkeys(captions)) == ["Run it", "Use it", "Extend it"]


def test_a_broken_link_fails_the_build(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# Pages\n\n[gone](gone.md#part)\n")
    ran = build(tmp_path, tmp_path / "out")
    assert ran.returncode != 0 and "gone.md" in ran.stderr
