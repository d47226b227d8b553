"""The manual as a site that can be searched: `make docs` writes it to dist/docs.

Sphinx reads the pages where they lie, so their links work in the repository and on the site. The
side bar has the headings and pages of docs/README.md; that index is the only list of pages.
"""

import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
INDEX = "docs/README"
# The pages that these pages link to in their own folder are under them in the side bar.
SHELVES = (
    "docs/cluster/README",
    "docs/decisions/README",
    "docs/performance",
    "docs/security/README",
)

project = "barnabas"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = ["myst_parser"]
root_doc = INDEX
include_patterns = ["*.md", "docs/**.md", "bench/**.md", "tests/**.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "docs/performance/spark_notes.md",  # a part of spark.md
    "tests/tls",
]
myst_heading_anchors = 4  # links to headings have GitHub's form
suppress_warnings = ["toc.not_included"]  # tests/cli/test_docs.py: the index lists each page

html_theme = "furo"
html_title = f"barnabas {release}"
html_show_copyright = False
html_copy_source = False
html_use_index = False

PAGE = re.compile(r"\]\((?!\w+://)([^)#\s]+)\.md\)")
SECTION = re.compile(r"^## ", re.M)


def contents(pages: list[str], caption: str = "") -> str:
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return "\n```{toctree}\n" + options + "\n" + "\n".join(dict.fromkeys(pages)) + "\n```\n"


def side_bar(name: str, text: str) -> str:
    """Returns the tables of contents that belong to the page `name`, as MyST directives."""
    if name == INDEX:
        first, *sections = SECTION.split(text)
        bars = [contents(PAGE.findall(first))]
        for section in sections:
            caption, _, body = section.partition("\n")
            if pages := PAGE.findall(body):
                bars.append(contents(pages, caption))
        return "".join(bars)
    if name in SHELVES:
        return contents([page for page in PAGE.findall(text) if "../" not in page])
    return ""


def add_side_bar(app: Sphinx, name: str, source: list[str]) -> None:
    if not source[0].startswith("# "):  # a table that a benchmark wrote
        source[0] = f"# Results: {Path(name).name}\n\n{source[0]}"
    source[0] += side_bar(name, source[0])


def add_front_page(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        front = f'<title>barnabas</title><meta http-equiv="refresh" content="0; url={INDEX}.html">'
        (Path(app.outdir) / "index.html").write_text(front + "\n")


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_side_bar)
    app.connect("build-finished", add_front_page)
