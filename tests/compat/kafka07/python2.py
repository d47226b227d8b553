"""brod 0.4.3 and samsa 0.3.11 on Python 3: the clients' own code, with the strings of Python 2.

Their sources are imported from the folder that ./install made, with changes of syntax, and with
names that Python 2 had: byte strings, `buffer`, signed CRCs. Nothing of the protocol is changed."""

import binascii
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

SYNTAX = (
    (r"except (\S+), (\w+):", r"except \1 as \2:"),
    (r"from cStringIO import StringIO", "from io import BytesIO as StringIO"),
    (r"from itertools import imap", "imap = map"),
    (r"import Queue", "import queue as Queue"),
    (r"(?m)^( +)print (.+)$", r"\1print(\2)"),
)
EMPTY = r"(?<![\w'])''(?!')"  # in brod always bytes


def _crc32(data: Any) -> int:
    return int.from_bytes(binascii.crc32(data).to_bytes(4, "big"), "big", signed=True)


def _str(value: Any) -> bytes:
    """str() of Python 2 for what the clients give it."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return value.getvalue() if hasattr(value, "getvalue") else str(value).encode()


def _buffer(data: Any, start: int = 0, size: int | None = None) -> bytes:
    return bytes(data[start : None if size is None else start + size])


NAMES = {"unicode": str, "xrange": range, "buffer": _buffer, "long": int}


class _Loader(importlib.machinery.SourceFileLoader):
    def path_stats(self, path: Any) -> Any:
        raise OSError("its source is changed: no .pyc file")

    def get_data(self, path: Any) -> bytes:
        source = Path(path).read_text()
        for pattern, replacement in SYNTAX:
            source = re.sub(pattern, replacement, source)
        if not self.name.startswith("samsa"):
            source = re.sub(EMPTY, "b''", source)
        return source.encode()

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(NAMES)
        if module.__name__.startswith("samsa."):
            module.__dict__["str"] = _str
        super().exec_module(module)
        if "crc32" in module.__dict__:
            module.__dict__["crc32"] = _crc32


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, roots: dict[str, Path]) -> None:
        self._roots = roots

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top, *rest = name.split(".")
        if top not in self._roots:
            return None
        file = self._roots[top].joinpath(*rest)
        is_package = file.is_dir()
        file = file / "__init__.py" if is_package else file.with_suffix(".py")
        return importlib.util.spec_from_file_location(
            name,
            file,
            loader=_Loader(name, str(file)),
            submodule_search_locations=[] if is_package else None,
        )


@contextmanager
def clients(folder: Path) -> Iterator[tuple[ModuleType, ModuleType]]:
    """Imports brod and samsa's client, and removes them at the end."""
    roots = {"brod": folder / "brod-0.4.3" / "brod", "samsa": folder / "samsa-0.3.11" / "samsa"}
    finder = _Finder(roots)
    sys.meta_path.insert(0, finder)
    try:
        brod, samsa = importlib.import_module("brod"), importlib.import_module("samsa.client")
        sys.modules["brod.base"].BaseKafka.compute_checksum = staticmethod(_crc32)
        yield brod, samsa
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] in roots]:
            del sys.modules[name]
