"""Prints docs/hooks.md: `python -m barnabas.hooks.reference > docs/hooks.md`."""

from __future__ import annotations

import inspect
import re

from barnabas.hooks import services, specs, views
from barnabas.hooks.builtin import BUILTIN
from barnabas.hooks.loading import Found, author_of, summary
from barnabas.hooks.options import COMMON, REQUIRED, Option, schema_of
from barnabas.hooks.project_kinds import KINDS

ESCAPED_BAR = "\\|"  # in a cell of a table
PARTS = ("When:", "Returns:", "When it fails:")
ARGUMENT = re.compile(r"`\w+`(, `\w+`)*:")
FIELD = re.compile(r"    (?P<name>\w+): (?P<type>[^=#]+?)(?: = [^#]+?)?(?:  # (?P<text>.*))?$")
EXAMPLES = {
    "interceptor": ("no-long-ones", "NoLongOnes"),
    "retention": ("keep-ten", "KeepTen"),
    "partitioner": ("vip-first", "VipFirst"),
    "encoder": ("capitals", "Capitals"),
    "topic-policy": ("team-names", "TeamNames"),
}
EXAMPLES_TEXT = """\
`barnabas plugins new NAME --hook KIND` makes a project with one of these plugins, a test of it and
a README. Change the method and the option as you need.
"""

INTRODUCTION = """\
# Plugins

`python -m barnabas.hooks.reference` writes this page; change the docstrings in the code instead.

A plugin is a class with hooks. Twenty lines are enough:

```python
from barnabas import hookimpl
from barnabas.hooks import Option, Reject


class NoSecrets:
    OPTIONS = {"words": Option("list", "words that no value may contain")}

    def __init__(self, options):
        self.words = [word.encode() for word in options["words"]]

    @hookimpl
    def intercept_produce(self, batch):
        for record in batch.records:
            if any(word in (record.value or b"") for word in self.words):
                return Reject("a value contains a secret")
```

Its distribution declares it in pyproject.toml; `barnabas plugins new NAME` makes a whole project
with tests, for each kind of hook (`--hook`).

```toml
[project.entry-points."barnabas.plugins"]
no-secrets = "no_secrets:NoSecrets"
```

`barnabas plugins list` lists the installed plugins. A plugin runs when the configuration names it:

```properties
plugins=no-secrets
plugin.no-secrets.words=password,token
```

`plugins` names the plugins that run in the broker, in their order. The broker calls three hooks of
the plugins that a topic names: in `retention.policy` (default `time,size`), `produce.interceptors`
and `fetch.interceptors`. Topics may name built-ins that `plugins` does not list. A topic may name a
plugin that does not run, for example after a change of `plugins`. Such a topic loses no data: the
broker rejects batches for it, answers fetches of it with an error, and deletes no segments of it.

`plugins` and `plugin.NAME.key` may be altered while the broker runs (`barnabas configs alter
default --add plugins=...`), and `barnabas plugins reload` also loads new code. The broker refuses a
set of plugins that it cannot load, and continues with the present one.

A broker that pip cannot install into (the one-file executable, a read-only image) loads plugins
from a directory of wheels: `barnabas start --plugin-path DIR`, or the setting `plugins.path=DIR`.
The directory holds the wheels of the plugins, and of the packages that they need and the broker
lacks. Of several wheels of one version the broker takes the one for its Python. It unpacks each
wheel once, into `/var/cache/barnabas/plugins` as root and `~/.cache/barnabas/plugins` otherwise. It
does not start when a wheel is damaged or for another Python, or when a package is missing.
`barnabas plugins reload` reads the directory again.

`/metrics` counts each call (`barnabas_plugin_*`). `BARNABAS_TRACE_HOOKS=1` in the broker's
environment prints each call of every plugin with its time, `plugin.NAME.trace=true` those of one.

## Options of every plugin

{common}

With `isolation=process` a plugin runs in a child process, one call at a time. The broker kills a
child that hangs. The next call starts the child again after a crash, an exit or too much memory
(`memory.max.bytes`), with a pause that grows while these repeat. Such a plugin gets no `services`,
and no secrets of the broker: its settings are `plugin.NAME.*` alone, its descriptors those of its
connection, its environment PATH, HOME, LANG, PYTHON* and the like, and what `environment` names. It
runs as the user of the broker, and may read the files of that user.
With `isolation=thread` a plugin is part of the broker's process: `os._exit` or a segmentation fault
in it ends the broker, and memory that it leaks is the broker's.

"""


def _options(schema: dict[str, Option], prefix: str) -> str:
    rows = ["| option | kind | default | meaning |", "|---|---|---|---|"]
    for key, option in schema.items():
        default = "must be set" if option.default is REQUIRED else f"`{_shown(option.default)}`"
        rows.append(f"| `{prefix}{key}` | {option.kind} | {default} | {option.meaning} |")
    return "\n".join(rows)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or " "


def signature(name: str) -> str:
    """Returns `name(argument, ...)` as an implementation may write it."""
    found = inspect.signature(getattr(specs.Specs, name)).parameters
    arguments = [row for row in found if row != "self"]
    return f"{name}({', '.join(arguments)})"


def _hook(name: str) -> str:
    function = getattr(specs.Specs, name)
    found = inspect.signature(function)
    text = inspect.getdoc(function) or ""
    return (
        f"### `{signature(name)}`\n\n"
        f"{_budget(name)} Answers `{found.return_annotation}`.\n\n"
        f"{_paragraphs(text)}\n"
    )


def _budget(name: str) -> str:
    found = specs.budget_ms(name)
    return f"Budget {found} ms." if found else "In the client; no budget."


def _paragraphs(text: str) -> str:
    """Makes paragraphs of the parts of a contract: `When:` and the like, and the explanations of
    arguments. A line that begins with a back-quote within a sentence does not begin a paragraph."""
    found: list[str] = []
    for line in text.splitlines():
        begins = line.startswith(PARTS) or (ARGUMENT.match(line) and found[-1].endswith("."))
        if begins and found and found[-1]:
            found.append("")
        found.append(line)
    return "\n".join(found)


def _view(cls: type) -> str:
    rows = [f"### `{cls.__name__}`", "", inspect.getdoc(cls) or "", ""]
    explained = fields_of(cls)
    if explained:
        rows += ["| field | type | meaning |", "|---|---|---|"]
        rows += [
            f"| `{name}` | `{kind.replace('|', ESCAPED_BAR)}` | {text} |"
            for name, kind, text in explained
        ]
    return "\n".join(rows).rstrip() + "\n"


def fields_of(cls: type) -> list[tuple[str, str, str]]:
    """Yields name, type and meaning of each field; the meaning is the comment after it in the
    source."""
    if not getattr(cls, "_fields", ()):
        return []
    return [
        (found["name"], found["type"], found["text"] or "")
        for line in inspect.getsource(cls).splitlines()
        if (found := FIELD.match(line))
    ]


def _builtin(name: str) -> str:
    author = author_of(Found(name, BUILTIN[name], "barnabas", ""))
    schema = dict(schema_of(author))
    module = inspect.getdoc(inspect.getmodule(author)) or ""
    first = summary(author)
    text = f"### `{name}`\n\n"
    if not _says(module, first):
        text += f"{first}\n\n"
    text += f"{module.strip()}\n"
    return text + (f"\n{_options(schema, f'plugin.{name}.')}\n" if schema else "")


def _says(text: str, line: str) -> bool:
    """Returns whether the first sentence of `text` equals `line`, apart from case and
    punctuation."""
    first = text.split("\n\n")[0].replace("\n", " ")
    plain = [re.sub(r"[^a-z0-9 ]", "", one.lower()) for one in (first, line)]
    return plain[1].strip() in plain[0]


def example(kind: str) -> str:
    """Returns the plugin that `barnabas plugins new NAME --hook KIND` writes."""
    found = KINDS[kind]
    name, cls = EXAMPLES[kind]
    words = {"name": name, "module": name.replace("-", "_"), "cls": cls}
    return (
        f"### {kind}: `{found.hook}`\n\n`{cls}` {found.summary}.\n\n"
        f"```python\n{found.plugin.format(**words)}```\n\n{_use(found.use.format(**words))}\n"
    )


def _use(text: str) -> str:
    """Makes a code block of indented commands."""
    commands = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    rest = [line for line in text.splitlines() if line and not line.startswith("    ")]
    return "\n".join(["```sh", *commands, "```", *(["", *rest] if rest else [])]) + "\n"


def page() -> str:
    parts = [INTRODUCTION.replace("{common}", _options(COMMON, "plugin.NAME."))]
    parts += ["## An example of each kind\n", EXAMPLES_TEXT]
    parts += [example(kind) for kind in KINDS]
    parts += ["## Hooks\n", (inspect.getdoc(specs) or "").split("\n\n", 1)[1], ""]
    parts += [_hook(name) for name in specs.names()]
    parts += ["## Arguments and return values of hooks\n"]
    parts += [_view(cls) for cls in vars(views).values() if _is_view(cls)]
    parts += ["## Services of the broker for plugins inside it\n"]
    for name, function in vars(services.Services).items():
        if inspect.isfunction(function) and not name.startswith("_"):
            arguments = [row for row in inspect.signature(function).parameters if row != "self"]
            parts.append(f"- `{name}({', '.join(arguments)})`: {_flat(function)}")
    parts += ["", "## Built-in plugins\n"]
    parts += [_builtin(name) for name in BUILTIN]
    return "\n".join(parts).rstrip() + "\n"


def _flat(function: object) -> str:
    return " ".join((inspect.getdoc(function) or "").split())


def _is_view(cls: object) -> bool:
    return (
        inspect.isclass(cls)
        and cls.__module__ == views.__name__
        and not cls.__name__.startswith("_")
    )


if __name__ == "__main__":
    print(page(), end="")
