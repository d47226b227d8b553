"""Writes the project of `barnabas plugins new NAME --hook KIND`: it can be installed, and its tests
pass. The code of the plugins is in project_kinds.py."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from barnabas.hooks.builtin import BUILTIN
from barnabas.hooks.project_kinds import KINDS

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\Z")

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "A plugin for barnabas"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["barnabas"]

[project.optional-dependencies]
test = ["pytest>=8"]

[project.entry-points."barnabas.plugins"]
{name} = "{module}:{cls}"

[tool.setuptools]
py-modules = ["{module}"]
"""

PLUGIN = '''\
"""{cls}: {summary}.

The contract of every hook is in barnabas.hooks.specs, and in docs/hooks.md.
"""

'''

TEST = '''\
"""The plugin with a broker of the test's own, driven over the wire."""

'''

README = """\
# {name}

A plugin for the broker barnabas: it {summary}.

    pip install {name}
{use}
| option | default | meaning |
|---|---|---|
| `plugin.{name}.{option}` | `{default}` | {meaning} |

    pip install -e '.[test]' && pytest
"""


class BadName(ValueError):
    """A plugin cannot have this name."""


def write_project(name: str, into: Path, kind: str = "interceptor") -> Path:
    """Creates the directory `name`, which must not exist, in `into`, with a plugin of one of KINDS,
    and returns its path. Raises BadName, OSError."""
    check_name(name)
    found = KINDS[kind]
    words = {
        "name": name,
        "module": name.replace("-", "_"),
        "cls": "".join(part.capitalize() for part in name.split("-")),
        "summary": found.summary,
        "option": found.option,
        "default": found.default,
        "meaning": found.meaning,
    }
    words["use"] = found.use.format(**words)
    target = into / name
    target.mkdir(parents=True)
    files = {
        "pyproject.toml": PYPROJECT,
        f"{words['module']}.py": PLUGIN + found.plugin,
        f"test_{words['module']}.py": TEST + found.test,
        "README.md": README,
    }
    for path, text in files.items():
        (target / path).write_text(text.format(**words), encoding="utf-8")
    return target


def check_name(name: str) -> None:
    """Checks a name. Raises BadName for an invalid name, the name of a built-in plugin, and a name
    whose module would hide one of Python or of an installed package."""
    if not NAME.match(name) or len(name) > 60:
        raise BadName(f"{name!r} is not a valid name: use small letters, digits and hyphens.")
    if name in BUILTIN:
        raise BadName(f"{name} is the name of a built-in plugin. Choose another name.")
    module = name.replace("-", "_")
    if module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None:
        raise BadName(
            f"the plugin's module {module}.py would hide an installed module {module}."
            f" Choose another name, such as {name}-plugin."
        )
