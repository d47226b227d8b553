"""`make yellow`: nogil functions and blocks of cext may not ask for the GIL, call Python or raise.

Runs Cython on cext and reads the C it gives. Each function declared `nogil` in a .pyx or .pxd of
cext is found by its C name, each `with nogil:` block by the thread state it saves; a GIL call or a
call of Python's C API inside is reported. The usual cause is a function without `noexcept`: its
caller then takes the GIL after every call to see whether it raised.
Functions that end at an edge (`with gil`) are not nogil leaves and must not exist in hot modules.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = re.compile(
    r"\b(PyGILState_Ensure|__Pyx_PyGILState_Ensure|__Pyx_WriteUnraisable|__Pyx_AddTraceback"
    r"|__Pyx_ErrOccurredWithGIL|PyEval_\w+|PyErr_\w+|PyObject_\w+|PyLong_\w+|PyList_\w+|PyDict_\w+|PyTuple_\w+|PyUnicode_\w+"
    r"|__Pyx_Raise\w*|__Pyx_PyObject_\w+|Py_INCREF|Py_DECREF|__Pyx_GOTREF)\b"
)
DECLARATION = re.compile(
    r"^cdef\s+(?:inline\s+)?[\w\s*]+?[\s*](\w+)\s*\([^)]*\)\s*(?:noexcept\s+)?nogil\s*:", re.M
)


def nogil_names(source: str) -> set[str]:
    """Names of the functions that a Cython source defines as nogil."""
    return set(DECLARATION.findall(re.sub(r"\(\s*\n|,\s*\n\s*", lambda m: m[0].strip(), source)))


def c_functions(text: str) -> dict[str, tuple[int, str]]:
    """Name -> (line, body) of every cdef function; Cython writes its head on one line."""
    found = {}
    pattern = re.compile(r"^static [^\n]*?\b(__pyx_f_\w+)\([^\n]*\) \{\n", re.M)
    for match in pattern.finditer(text):
        end = text.find("\n}\n", match.end())
        found[match[1]] = (text.count("\n", 0, match.start()) + 1, text[match.end() : end])
    return found


def c_name(module: str, leaf: str) -> str:
    """What Cython calls the cdef function `leaf` of barnabas.cext.`module` ("log.segment")."""
    parts = "".join(f"_{len(part)}{part}" for part in module.split("."))
    return f"__pyx_f_8barnabas_4cext{parts}_{leaf}"


def module_of(source: Path) -> str:
    """The name of a source of cext below barnabas.cext."""
    return ".".join(source.relative_to(ROOT / "cext").with_suffix("").parts)


BLOCK = re.compile(r"= PyEval_SaveThread\(\);\n(.*?)__Pyx_FastGIL_Forget\(\);", re.S)


def blocks(text: str) -> list[tuple[int, str]]:
    """(line, body) of every `with nogil:` block, up to where it takes the GIL back."""
    return [(text.count("\n", 0, found.start()) + 1, found[1]) for found in BLOCK.finditer(text)]


def forbidden(body: str) -> str | None:
    """The first function of Python's C API that a piece of C code calls outside comments."""
    bad = FORBIDDEN.search(re.sub(r"/\*.*?\*/|^#.*$", "", body, flags=re.S | re.M))
    return bad[0] if bad else None


def findings(name: str, nogil: set[str], c_text: str) -> tuple[set[str], list[str]]:
    """(which of the C names in `nogil` are defined in a C file, what is wrong with them)."""
    seen, wrong = set(), []
    for function, (line, body) in c_functions(c_text).items():
        if function not in nogil:
            continue
        seen.add(function)
        if bad := forbidden(body):
            wrong.append(f"{name}.c:{line} {function} calls {bad}")
    for line, body in blocks(c_text):
        seen.add(f"{name}.c:{line}")
        if bad := forbidden(body):
            wrong.append(f"{name}.c:{line} a block without the GIL calls {bad}")
    return seen, wrong


def generate_c(into: Path) -> None:
    """Runs Cython for every module of cext whose C file is older than its sources."""
    environment = {**os.environ, "BARNABAS_C_DIR": str(into)}
    script = "import runpy; s = runpy.run_path('setup.py'); s['cythonized'](s['extensions']())"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True)


def check_all(folder: Path) -> tuple[int, list[str]]:
    """(number of nogil functions and blocks, what is wrong) of the C files below `folder`."""
    nogil = set()
    for source in sorted((ROOT / "cext").rglob("*.p[yx][xd]")):
        nogil |= {c_name(module_of(source), leaf) for leaf in nogil_names(source.read_text())}
    seen, wrong = set(), []
    for c_file in sorted(folder.rglob("*.c")):
        found, problems = findings(c_file.stem, nogil, c_file.read_text())
        seen |= found
        wrong += problems
    return len(seen), wrong


if __name__ == "__main__":
    generate_c(ROOT / "build" / "yellow")
    looked_at, problems = check_all(ROOT / "build" / "yellow")
    print("\n".join(problems) or f"{looked_at} nogil functions and blocks, none touches Python")
    sys.exit(1 if problems else 0)
