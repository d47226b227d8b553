"""Every file and module that a docstring or comment of the product names exists.

Names are read in three forms: a path from the top of the repository (`broker/storage/log`, with or
without its suffix, and perhaps with a name inside it: `cext/log/log.append`), a file name with a
suffix of ours (`messages.txt`), and a module (`barnabas.storage.log`).
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = {"broker": "barnabas", "cext": "barnabas.cext", "clients": "barnabas.clients"}
PRODUCT |= {"plugins": "barnabas.plugins"}
SUFFIXES = (".py", ".pyx", ".pxd", ".pyi", ".h", ".c", ".md", ".tsv", ".txt", ".toml")
PROSE = re.compile(r'"""(.*?)"""|#: ?([^\n]*)|(?m:^|[ \t])#(?!\{)([^\n]*)|/\*(.*?)\*/', re.DOTALL)
PATH = re.compile(r"(?<![\w./-])((?:broker|cext|clients|plugins|tests|bench|docs)/[\w./-]*\w)")
FILE = re.compile(r"(?<![\w./*<>{}-])([a-z]\w*\.(?:py|pyx|pxd|pyi))\b(?![./\w])")
MODULE = re.compile(r"(?<![\w./-])(barnabas(?:\.\w+)+)")


def sources(root: Path) -> list[Path]:
    found = [p for top in PRODUCT for p in (root / top).rglob("*")]
    return sorted(p for p in found if p.suffix in (".py", ".pyx", ".pxd", ".pyi", ".h"))


def path_exists(root: Path, name: str) -> bool:
    """A path with its suffix, without it, or followed by a name inside the file."""
    for text in (name, name.rpartition(".")[0]):
        if text and ((root / text).exists() or any((root / (text + s)).exists() for s in SUFFIXES)):
            return True
    return False


def module_exists(root: Path, name: str) -> bool:
    """A module, a name inside a module, or a name that the package itself exports."""
    by_length = sorted(PRODUCT.items(), key=lambda item: -len(item[1]))
    top, package = next(each for each in by_length if f"{name}.".startswith(f"{each[1]}."))
    folder = root / top
    for word in name.removeprefix(package).split(".")[1:]:
        if any((folder / (word + suffix)).exists() for suffix in SUFFIXES[:3]):
            return True
        if not (folder / word).is_dir():
            return word in (folder / "__init__.py").read_text()
        folder = folder / word
    return True


def missing(root: Path) -> list[str]:
    """`FILE: NAME` for each name of a file or module that does not exist."""
    kinds = (".py", ".pyx", ".pxd", ".pyi")
    files = {p.name for p in root.rglob("*") if p.suffix in kinds and ".venv" not in p.parts}
    found = []
    for source in sources(root):
        text = "\n".join("".join(filter(None, each)) for each in PROSE.findall(source.read_text()))
        wrong = [name for name in PATH.findall(text) if not path_exists(root, name)]
        wrong += [name for name in FILE.findall(text) if name not in files]
        wrong += [name for name in MODULE.findall(text) if not module_exists(root, name)]
        found += [f"{source.relative_to(root)}: {name}" for name in wrong]
    return found


def test_every_file_that_a_docstring_names_exists() -> None:
    assert missing(ROOT) == []


def test_a_name_that_stands_for_nothing_is_seen(tmp_path: Path) -> None:
    (tmp_path / "broker" / "storage").mkdir(parents=True)
    (tmp_path / "broker" / "storage" / "log.py").write_text(
        '"""See broker/storage/log, broker/storage/log.append, log.py and barnabas.storage.log,\n'
        'then broker/storage/gone, gone.py and barnabas.storage.gone."""\n'
        "# and broker/gone.py\n"
    )
    (tmp_path / "broker" / "storage" / "__init__.py").write_text("")
    (tmp_path / "broker" / "__init__.py").write_text("")
    assert missing(tmp_path) == [
        "broker/storage/log.py: broker/storage/gone",
        "broker/storage/log.py: broker/gone.py",
        "broker/storage/log.py: gone.py",
        "broker/storage/log.py: barnabas.storage.gone",
    ]
