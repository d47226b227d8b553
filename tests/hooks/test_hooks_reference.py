"""docs/hooks.md has every hook with its exact arguments, and is what the code makes of it."""

import inspect
import re
from pathlib import Path

import pytest

from barnabas.hooks import reference, specs, views

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hooks.md"
PARTS = ("When:", "Returns:", "When it fails:")


def test_the_page_is_made_from_the_code():
    assert PAGE.read_text() == reference.page(), (
        "python -m barnabas.hooks.reference > docs/hooks.md"
    )


def undocumented(text, functions):
    """Hooks whose heading, with its exact arguments, is not on a page."""
    wrong = []
    for name, function in functions.items():
        arguments = [row for row in inspect.signature(function).parameters if row != "self"]
        if f"### `{name}({', '.join(arguments)})`\n" not in text:
            wrong.append(name)
    return wrong


def functions():
    return {name: getattr(specs.Specs, name) for name in specs.names()}


def test_every_hook_has_its_page_with_its_exact_arguments():
    assert undocumented(PAGE.read_text(), functions()) == []


def test_a_hook_with_another_argument_is_seen():
    text = PAGE.read_text().replace("should_flush(log)", "should_flush(log, now_ms)")
    assert undocumented(text, functions()) == ["should_flush"]


@pytest.mark.parametrize("name", specs.names())
def test_each_contract_says_when_what_comes_back_and_what_a_failure_means(name):
    text = inspect.getdoc(getattr(specs.Specs, name))
    assert all(part in text for part in PARTS)
    for argument in inspect.signature(getattr(specs.Specs, name)).parameters:
        in_words = argument in ("self", "topic", "partition", "batch", "leader_epoch")
        assert in_words or f"`{argument}`" in text, argument


def test_every_hook_is_called_somewhere():
    from barnabas import clients

    specifications = ("specs.py", "client_specs.py")
    roots = (Path(reference.__file__).resolve().parents[1], Path(clients.__file__).parent)
    code = "\n".join(
        path.read_text()
        for root in roots
        for path in root.rglob("*.py")
        if path.name not in specifications
    )
    for name in specs.names():
        assert re.search(rf'"{name}"', code), name


def test_every_view_is_on_the_page():
    text = PAGE.read_text()
    for name, value in vars(views).items():
        if inspect.isclass(value) and value.__module__ == views.__name__ and name[0] != "_":
            assert f"### `{name}`" in text
