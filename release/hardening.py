"""Checks the compiled modules of a wheel: hardening.py WHEEL, or a folder of modules. Prints a line
for each one that is not as it must be, and fails. Needs readelf.

What an overflow could write to is read-only after the start (RELRO, BIND_NOW). No memory is both
writable and executable. Functions with arrays check their stack. Copies check sizes that are known
only when they run: _FORTIFY_SOURCE=3 makes network/reactor call __memcpy_chk. A module needs
no library but those of glibc, and searches no other folder for them (RPATH)."""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

GLIBC = {"libc.so.6", "libpthread.so.0", "libm.so.6", "libdl.so.2"}
GLIBC |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def problems(modules: list[Path], alone: bool) -> list[str]:
    """What is wrong with the modules. `alone`: they need no library of the system beside glibc."""
    found = []
    checked = set()
    for path in modules:
        read = subprocess.run(
            ["readelf", "--wide", "--program-headers", "--dynamic", "--dyn-syms", path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", read))
        wrong = {
            "RELRO": "GNU_RELRO" not in read,
            "BIND_NOW": not re.search(r"\(FLAGS(_1)?\).*NOW", read),
            "a stack that is not executable": not re.search(r"GNU_STACK .* RW ", read),
            "memory that is not both writable and executable": " RWE " in read,
            "code without relocations": "TEXTREL" in read,
            "checked stacks": "__stack_chk_fail" not in read,
        }
        found += [f"{path.name} lacks {what}" for what, is_wrong in wrong.items() if is_wrong]
        if alone and (more := needed - GLIBC):
            found.append(f"{path.name} needs {', '.join(sorted(more))}")
        if alone and re.search(r"\(R(UN)?PATH\)", read):
            found.append(f"{path.name} has an RPATH")
        checked |= {path.name.split(".")[0]} if "__memcpy_chk" in read else set()
    if "reactor" not in checked:
        found.append("copies do not check sizes that are known only when they run: no level 3")
    return found


def check(place: Path) -> int:
    """Checks a folder; returns the number of modules."""
    modules = sorted(place.rglob("*.so"))
    if found := problems(modules, alone=True):
        raise SystemExit("\n".join(found))
    return len(modules)


if __name__ == "__main__":
    wheel = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        if wheel.is_file():
            zipfile.ZipFile(wheel).extractall(folder)
        count = check(Path(folder) if wheel.is_file() else wheel)
    print(f"{wheel.name}: {count} modules are hardened")
