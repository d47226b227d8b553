"""The project that `barnabas plugins new NAME` makes: installable, with a test that passes."""

from __future__ import annotations

import re
from pathlib import Path

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
"""{cls}: refuses records whose value is longer than an option says.

The contract of every hook is in barnabas.hooks.specs, and in docs/hooks.md.
"""

from barnabas import hookimpl
from barnabas.hooks import Option, RecordBatch, Reject


class {cls}:
    """Refuses long records."""

    OPTIONS = {{"longest": Option("integer", "bytes of a value", default=1000, least=0)}}

    def __init__(self, options):
        self.longest = options["longest"]

    @hookimpl
    def intercept_produce(self, batch: RecordBatch):
        for index, record in enumerate(batch.records):
            if record.value is not None and len(record.value) > self.longest:
                return Reject(f"record {{index}} has {{len(record.value)}} bytes")
        return None
'''

TEST = '''\
"""The plugin in a broker of the test's own, driven over the wire."""

import pytest

from barnabas.errors import InvalidRecord

SETTINGS = {{"plugins": "{name}", "plugin.{name}.longest": "10"}}


@pytest.mark.broker(SETTINGS)
@pytest.mark.topic(configs={{"produce.interceptors": "{name}"}})
def test_long_records_are_refused(broker, topic, produce):
    produce(topic, [b"short"])
    with pytest.raises(InvalidRecord, match="record 1 has 11 bytes"):
        produce(topic, [b"short", b"much longer"])
    broker.assert_records(topic, ["short"])


def test_the_hook_alone(plugin_batch):
    from {module} import {cls}

    made = {cls}({{"longest": 3}})
    assert made.intercept_produce(plugin_batch([b"abc"])) is None
    assert made.intercept_produce(plugin_batch([b"abcd"])) is not None
'''

README = """\
# {name}

A plugin for the broker barnabas.

    pip install {name}
    barnabas start --set plugins={name} --set plugin.{name}.longest=1000
    barnabas topics create news --config produce.interceptors={name}

| option | default | meaning |
|---|---|---|
| `plugin.{name}.longest` | 1000 | bytes of a value |

    pip install -e '.[test]' && pytest
"""


class BadName(ValueError):
    """The name is none for a plugin."""


def write_project(name: str, into: Path) -> Path:
    """Makes the directory `name`, which must not be there. Raises BadName, OSError."""
    if not NAME.match(name) or len(name) > 60:
        raise BadName(f"{name!r} is no name for a plugin: small letters, digits and hyphens.")
    words = {
        "name": name,
        "module": name.replace("-", "_"),
        "cls": "".join(part.capitalize() for part in name.split("-")),
    }
    target = into / name
    target.mkdir(parents=True)
    files = {
        "pyproject.toml": PYPROJECT,
        f"{words['module']}.py": PLUGIN,
        f"test_{words['module']}.py": TEST,
        "README.md": README,
    }
    for path, text in files.items():
        (target / path).write_text(text.format(**words), encoding="utf-8")
    return target
