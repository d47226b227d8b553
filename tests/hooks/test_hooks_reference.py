"""docs/hooks.md has every hook with its exact arguments, and equals what the code generates."""

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


def test_no_built_in_says_its_first_line_twice():
    """F35: the page had the summary above a text that began with it."""
    part = PAGE.read_text().split("## Built-in plugins\n")[1]
    for section in part.split("\n### ")[1:]:
        paragraphs = [" ".join(text.split()) for text in section.split("\n\n")[1:3]]
        assert len(paragraphs) < 2 or not paragraphs[1].startswith(paragraphs[0]), section[:40]


def test_every_field_of_a_view_is_explained():
    """F35: fields had types and no explanation."""
    for value in vars(views).values():
        if (
            inspect.isclass(value)
            and hasattr(value, "_fields")
            and value.__module__ == views.__name__
        ):
            found = {name: text for name, _, text in reference.fields_of(value)}
            if value.__name__ != "Reject":
                assert list(found) == list(value._fields) and all(found.values()), value


def test_no_paragraph_is_torn_at_a_back_quote():
    """F35: a line inside a sentence that began with a back-quote became a new paragraph."""
    text = (
        "When: every x, for each log whose policy has\n`delete`, of the plugins.\n`log`: the log."
    )
    told = reference._paragraphs(text)
    assert "has\n`delete`, of the plugins.\n\n`log`: the log." in told
