"""Finds a plugin by name, imports it, checks its options and creates it.

Names are those of builtin.py or of the entry-point group `barnabas.plugins`:

    [project.entry-points."barnabas.plugins"]
    redact = "redact_fields:Redact"

The entry point refers to a class (or any callable). It is called with the options when it declares
OPTIONS, otherwise without arguments. `plugin.NAME.use=OTHER` runs the plugin OTHER under the name
NAME, with the options of NAME.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pluggy

from barnabas.hooks import specs
from barnabas.hooks.builtin import BUILTIN
from barnabas.hooks.former_names import ARGUMENTS, AcceptedSpecs, AcceptingManager
from barnabas.hooks.options import COMMON, BadOptions, parse, schema_of, split
from barnabas.hooks.plugin import CannotLoad, Implementation, Plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "barnabas.plugins"
BUILT_IN = "barnabas"  # the distribution of built-in plugins


class Found(NamedTuple):
    """An installed plugin."""

    name: str
    target: str  # module:attribute
    distribution: str
    version: str


def installed() -> list[Found]:
    """Returns the installed plugins: built-ins first, then the others by name."""
    return [_builtin(name) for name in BUILTIN] + sorted(_others())


def _builtin(name: str) -> Found:
    from barnabas import __version__

    return Found(name, BUILTIN[name], BUILT_IN, __version__)


def _others() -> Iterator[Found]:
    from importlib.metadata import entry_points

    for row in entry_points(group=GROUP):
        yield _of_entry_point(row)


def _of_entry_point(row: EntryPoint) -> Found:
    name, version = (row.dist.name, row.dist.version) if row.dist is not None else ("", "")
    return Found(row.name, row.value, name, version)


def find(name: str) -> Found:
    """Returns the installed plugin with this name, a built-in one or an entry point. Raises
    CannotLoad when there is none, or several packages have one of this name."""
    if name in BUILTIN:
        return _builtin(name)
    found = [row for row in _others() if row.name == name]
    if not found:
        raise CannotLoad(
            [
                f"plugins: the plugin {name!r} is not installed. Install it with pip into"
                f" {sys.prefix}, put its wheel into the directory of plugins.path, or correct the"
                " name; `barnabas plugins list` shows the plugins."
            ]
        )
    if problem := name_taken(found[0], found):
        raise CannotLoad([f"plugins: {problem}"])
    return found[0]


def name_taken(plugin: Found, among: Iterable[Found]) -> str | None:
    """Returns why a plugin cannot be loaded because another one of `among` has its name; None when
    it can."""
    same = [row for row in among if row.name == plugin.name]
    if plugin.distribution != BUILT_IN and any(row.distribution == BUILT_IN for row in same):
        return (
            f"{plugin.name} of {plugin.distribution} cannot be loaded: barnabas has a built-in"
            f" plugin {plugin.name}. Give it another name in its entry point."
        )
    owners = {row.distribution for row in same} | {plugin.distribution}
    if plugin.distribution != BUILT_IN and len({(r.distribution, r.target) for r in same}) > 1:
        return (
            f"{plugin.name} is a plugin of {', '.join(sorted(owners))}; the broker loads none."
            " Uninstall all but one."
        )
    return None


def author_of(found: Found) -> Any:
    """Imports and returns the object that the entry point refers to, a class or a module. Raises
    CannotLoad with the error of the import."""
    module, _, attribute = found.target.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split(".") if attribute else ():
            target = getattr(target, part)
    except Exception as error:  # any error of an import
        raise CannotLoad(
            [f"cannot import plugin {found.name} ({found.target}): {_reason(error)}."]
        ) from error
    return target


def _reason(error: Exception) -> str:
    """Returns what a plugin raised, and the remedy when a package is missing."""
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    if not isinstance(error, ModuleNotFoundError):
        return text
    return (
        f"{text}. Install that package into {sys.prefix}; pip install 'barnabas[plugins]' installs"
        " those of the built-in plugins"
    )


def load(
    name: str, texts: Mapping[str, str], isolated_here: bool = False, any_module: bool = False
) -> Plugin:
    """Returns a new plugin. `texts`: its options by key. `isolated_here`: this process is the
    plugin's own. `any_module`: the name may be `module:Class`, which a broker never allows, because
    clients may alter its settings. Raises CannotLoad."""
    common_texts, own_texts = split(texts)
    try:
        common = parse(name, COMMON, common_texts)
        use = common["use"] or name
        found = Found(use, use, "", "") if any_module and ":" in use else find(use)
        if common["isolation"] == "process" and not isolated_here:
            from barnabas.hooks.process import load_in_process

            return load_in_process(name, texts, common, any_module)
        author = author_of(found)
        made = _made(name, author, own_texts)
    except BadOptions as error:
        raise CannotLoad([f"plugin {name}: {line}" for line in error.problems]) from error
    return Plugin(
        name,
        implementations(name, made),
        made=made,
        version=found.version,
        path=str(getattr(sys.modules.get(type(made).__module__), "__file__", "")),
        common=common,
    )


def _made(name: str, author: Any, texts: Mapping[str, str]) -> Any:
    schema = schema_of(author)
    values = parse(name, schema, texts)
    if not callable(author):
        return author
    try:
        return author(values) if hasattr(author, "OPTIONS") else author()
    except BadOptions:
        raise
    except Exception as error:
        raise CannotLoad([f"cannot create plugin {name}: {_reason(error)}."]) from error


def implementations(name: str, made: Any) -> dict[str, Implementation]:
    """Returns the hooks of an object, in the order of the specifications. Raises CannotLoad for a
    hook that fits no specification, for a method with the name of a hook and without @hookimpl, and
    for an object without hooks, because such a plugin would run and do nothing."""
    manager = AcceptingManager(specs.PROJECT)
    manager.add_hookspecs(AcceptedSpecs)
    try:
        manager.register(made, name=name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise CannotLoad([f"plugin {name}: {_one_line(error)}"]) from error
    found = {}
    for hook in specs.names():
        for row in getattr(manager.hook, hook).get_hookimpls():
            arguments = tuple(ARGUMENTS.get(argument, argument) for argument in row.argnames)
            found[hook] = Implementation(row.function, arguments)
    unmarked = [
        hook for hook in specs.names() if hook not in found and callable(getattr(made, hook, None))
    ]
    if unmarked:
        raise CannotLoad(
            [
                f"plugin {name}: {hook} has the name of a hook and lacks @hookimpl."
                " Write @hookimpl above it (from barnabas import hookimpl)."
                for hook in unmarked
            ]
        )
    if not found:
        raise CannotLoad(
            [
                f"plugin {name} implements no hook. docs/hooks.md lists the hooks; each needs"
                " @hookimpl above its function (from barnabas import hookimpl)."
            ]
        )
    return found


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def forget_modules(target: str) -> None:
    """Forgets the modules of a plugin, so that its next import reads its files again; modules of
    the broker stay."""
    top = target.partition(":")[0].partition(".")[0]
    if top == "barnabas":
        return
    for module in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
        del sys.modules[module]
    importlib.invalidate_caches()


def summary(author: Any) -> str:
    """Returns the first paragraph of the docstring of the plugin, or of its module, as one line."""
    text = inspect.getdoc(author) or inspect.getdoc(inspect.getmodule(author)) or ""
    return text.strip().split("\n\n")[0].replace("\n", " ")
