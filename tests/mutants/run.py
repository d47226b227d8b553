"""Plants each bug of tests/mutants in a copy of this checkout and runs the tests against it.

    python tests/mutants/run.py [PACKAGE or text of the damage] …    all when none is given
    python tests/mutants/run.py --list

A bug is caught when a test of its package fails, or one of tests/compat, which come after them;
those with the name of the damaged module, and those that import it, are run first. Each bug has
LIMIT_S seconds (`--limit-s` on a busy machine); one whose time is up has no result. The copy is in
build/mutants; what was compiled is copied too, and a planted bug compiles only what depends on its
file. The table goes to build/mutants/table.md. The tests must pass without a bug (`--no-baseline`
leaves that run out). `--resume` goes on after a run that was interrupted.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from mutants.planted import PACKAGES, Mutant, mutants, place, sources  # noqa: E402

COPY = ROOT / "build" / "mutants" / "tree"
TABLE = COPY.parent / "table.md"
LIMIT_S = 240
COMPILED = (".so", ".c")
HEAD = ("| package | damage | file | caught by | s |", "|---|---|---|---|---|")
NOT_CAUGHT = "**not caught**"
TIME_IS_UP = "time is up"
KINDS = ("caught", "not caught", "without a result", "missing")
WITHOUT_JAVA = "not java and not spark_session"
NEAREST = ("-m", WITHOUT_JAVA)
PARALLEL = (
    *("-m", f"{WITHOUT_JAVA} and not alone"),
    *("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"),
)
ALONE = ("-m", f"{WITHOUT_JAVA} and alone")


def copy_tree() -> None:
    """What git knows and what was compiled in place; files keep their times, so that the build
    finds nothing to do."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    names = {name for name in listed if name and (ROOT / name).is_file()}
    names |= {
        str(path.relative_to(ROOT))
        for path in (ROOT / "cext").rglob("*")
        if path.suffix in COMPILED
    }
    for path in [p for p in COPY.rglob("*") if p.is_file() and "build" not in p.parts]:
        if str(path.relative_to(COPY)) not in names:
            path.unlink()
    for name in names:
        source, target = ROOT / name, COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.stat().st_mtime_ns != source.stat().st_mtime_ns:
            shutil.copy2(source, target)


def build() -> str:
    """Compiles what changed in the copy. Returns the end of the output when that fails."""
    ran = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=COPY, capture_output=True, text=True,
    )  # fmt: skip
    return "" if ran.returncode == 0 else (ran.stdout + ran.stderr)[-500:]


def outcome(tests: list[str], limit_s: float, how: tuple[str, ...] = PARALLEL) -> str:
    """ "passed", "none", "time is up", or the name of the first test that failed."""
    environ = {**os.environ, "PYTHONPATH": str(COPY / "build" / "links")}
    command = [sys.executable, "-m", "pytest", "-q", "-x", *how, *tests]
    with subprocess.Popen(
        command, cwd=COPY, env=environ, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=max(limit_s, 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return TIME_IS_UP
    if process.returncode in (0, 5):
        return "passed"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return failed[1] if failed else said.strip().splitlines()[-1][:120]


def nearest(path: Path, tests: tuple[str, ...]) -> list[str]:
    """The test files with the name of the module in `path`, then those that import it; of each
    those with fewest imports first."""
    top, *parts = path.relative_to(COPY).with_suffix("").parts
    *above, stem = ["barnabas", *([top] if top == "cext" else []), *parts]
    package = re.escape(".".join(above))
    imports = rf"^(?:from|import) {package}(?:\.| import .*\b){stem}\b"
    found = []
    for test in tests:
        given = COPY / test
        for file in [given] if given.is_file() else sorted(given.rglob("test_*.py")):
            text = file.read_text()
            named = stem in file.stem
            if named or re.search(imports, text, re.MULTILINE):
                found.append((not named, text.count("import "), str(file.relative_to(COPY))))
    return [file for *_, file in sorted(found)]


def verdict(tests: tuple[str, ...], limit_s: float, path: Path | None = None) -> tuple[str, float]:
    """The outcome of the tests nearest to `path`, then of those of its package, then
    of tests/compat; and the seconds it took."""
    began = time.monotonic()
    near = nearest(path, tests) if path else []
    said = outcome(near, limit_s, NEAREST) if near else "passed"
    for rest, how in ((tests, PARALLEL), (tests, ALONE), (("tests/compat",), PARALLEL)):
        if said == "passed":
            said = outcome(list(rest), limit_s - (time.monotonic() - began), how)
    return said, time.monotonic() - began


def planted(mutant: Mutant, path: Path, limit_s: float) -> tuple[str, float]:
    """The verdict with the bug in `path`, which is as before afterwards, compiled parts too."""
    folder = COPY.parent / "before"
    shutil.rmtree(folder, ignore_errors=True)
    # build_ext compiles into build/lib* and copies every module from there, so a bug left there
    # would come back with the next build.
    tops = (COPY / "cext", *COPY.glob("build/lib*"))
    before = [p for top in tops for p in top.rglob("*") if p.suffix in COMPILED]
    before = [path, *before] if path.suffix != ".py" else [path]
    for one in before:
        (folder / one.relative_to(COPY)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(one, folder / one.relative_to(COPY))
    try:
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
        if path.suffix != ".py" and (failure := build()):
            return f"does not compile: {failure.splitlines()[-1]}", 0
        return verdict(mutant.tests, limit_s, path)
    finally:
        for one in before:
            shutil.copy2(folder / one.relative_to(COPY), one)


def is_wanted(mutant: Mutant, wanted: list[str]) -> bool:
    names = PACKAGES.intersection(wanted)
    pieces = [word for word in wanted if word not in names]
    return not wanted or mutant.package in names or any(w in mutant.damage for w in pieces)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wanted", nargs="*", help="packages, or text of a bug's damage")
    parser.add_argument("--list", action="store_true", help="the bugs, and where their text is")
    parser.add_argument("--no-baseline", action="store_true")
    parser.add_argument(
        "--resume", action="store_true", help="leave out the rows of the last table"
    )
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    given = parser.parse_args(words)
    chosen = [mutant for mutant in mutants() if is_wanted(mutant, given.wanted)]
    rows = resumed() if given.resume else []
    done = {row.damage for row in rows}
    chosen = [mutant for mutant in chosen if mutant.damage not in done]
    if given.list:
        texts = sources(ROOT)
        for mutant in chosen:
            found = place(mutant, ROOT, texts)
            name = found.relative_to(ROOT) if found else "missing"
            print(f"{mutant.package}\t{name}\t{mutant.damage}")
        return 0
    copy_tree()
    for folder in COPY.glob("build/lib*"):
        shutil.rmtree(folder)  # an interrupted run may have left a bug there
    if failure := build():
        sys.exit(f"the copy does not compile: {failure}")
    if not given.no_baseline:
        for tests in sorted({mutant.tests for mutant in chosen}):
            said, seconds = verdict(tests, given.limit_s)
            print(f"without a bug, {' '.join(tests)}: {said} in {seconds:.0f} s", flush=True)
            if said != "passed":
                sys.exit("these tests must pass without a bug, in less time than the limit")
    return report(chosen, rows, given.limit_s)


class Row(NamedTuple):
    """One planted bug in the table, with the test that caught it."""

    package: str
    damage: str
    file: str
    caught_by: str
    seconds: str

    @property
    def kind(self) -> str:
        if self.caught_by == NOT_CAUGHT:
            return "not caught"
        if self.caught_by == TIME_IS_UP:
            return "without a result"
        lost = self.caught_by.startswith(("its text is missing", "does not compile"))
        return "missing" if lost else "caught"

    def line(self) -> str:
        return f"| {' | '.join(self)} |"


def resumed() -> list[Row]:
    """The rows of the table that the last run left."""
    lines = TABLE.read_text().splitlines()[len(HEAD) :] if TABLE.exists() else []
    return [Row(*line.strip("| ").split(" | ")) for line in lines if line.startswith("| ")]


def report(chosen: list[Mutant], rows: list[Row], limit_s: float) -> int:
    """Plants each bug, prints a row for each, and writes the table. 1 when a bug was not caught."""
    texts = sources(COPY)
    for mutant in chosen:
        path = place(mutant, COPY, texts)
        said, seconds = planted(mutant, path, limit_s) if path else ("its text is missing", 0.0)
        name = str(path.relative_to(COPY)) if path else mutant.file
        caught_by = NOT_CAUGHT if said == "passed" else said
        rows.append(Row(mutant.package, mutant.damage, name, caught_by, f"{seconds:.0f}"))
        print(rows[-1].line(), flush=True)
        TABLE.write_text("\n".join([*HEAD, *(row.line() for row in rows), "", total(rows)]) + "\n")
    print(total(rows))
    return 1 if any(row.kind == "not caught" for row in rows) else 0


def total(rows: list[Row]) -> str:
    counts = Counter(row.kind for row in rows)
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
