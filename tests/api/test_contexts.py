"""A handler may use the context that its module declares, and its signature names that context."""

import typing
from importlib import import_module
from pathlib import Path

import pytest

import barnabas.api
from barnabas.api import contexts
from barnabas.api.call import Call
from barnabas.api.table import BETWEEN_BROKERS, LATE, api_table

FILES = sorted(path.stem for path in Path(barnabas.api.__file__).parent.glob("k[0-9]*.py"))


@pytest.mark.parametrize("file", FILES)
def test_a_handler_takes_a_call_of_its_modules_context(file):
    module = import_module(f"barnabas.api.{file}")
    row = api_table(is_shared=True)[module.KEY]
    if not hasattr(module, "handle"):
        assert row.context is contexts.NoContext
        return
    assert row.context is module.CONTEXT
    for function in (module.handle, module.refuse):
        asked = function.__annotations__["call"]
        if isinstance(asked, str):
            asked = eval(asked, vars(module))  # noqa: S307
        assert typing.get_origin(asked) is Call and typing.get_args(asked) == (module.CONTEXT,)


@pytest.mark.parametrize("file", [row[0] for row in (LATE | BETWEEN_BROKERS).values()])
def test_a_late_module_has_the_versions_of_the_table(file):
    module = import_module(f"barnabas.api.{file}")
    assert (file, module.VERSIONS, module.CONTEXT) == (LATE | BETWEEN_BROKERS)[module.KEY]


def test_every_context_is_frozen_and_used():
    made = {kind for kind in vars(contexts).values() if isinstance(kind, type)}
    families = {kind for kind in made if kind.__module__ == contexts.__name__}
    assert families == {row.context for row in api_table(is_shared=True).values()}
    for kind in families:
        context = kind._make(kind._fields)
        for name in kind._fields:
            with pytest.raises(AttributeError):
                setattr(context, name, None)
