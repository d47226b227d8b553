"""Plugins of tests, installed as by pip: modules and a .dist-info with entry points, in a
directory that this process and its children import from."""

import importlib
import os
import sys
import textwrap


def install(folder, monkeypatch, name, source, version="1.0", **entries):
    """`entries`: plugin name (with underscores for hyphens) to the attribute of the module."""
    module = name.replace("-", "_")
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(textwrap.dedent(source))
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{key.replace('_', '-')} = {module}:{value}" for key, value in entries.items()]
    (info / "entry_points.txt").write_text("[barnabas.plugins]\n" + "\n".join(lines) + "\n")
    if str(folder) not in sys.path:
        monkeypatch.syspath_prepend(str(folder))
        path = os.environ.get("PYTHONPATH")
        monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{path}" if path else str(folder))
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, module, raising=False)
