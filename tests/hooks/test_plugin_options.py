"""Options of plugins: the values that a schema accepts and refuses, and the error messages."""

import pytest

from barnabas.hooks.options import COMMON, BadOptions, Option, options_of, parse, schema_of, split

SCHEMA = {
    "fields": Option("list", "fields to mask"),
    "count": Option("integer", "how many", 3, least=1, most=9),
    "share": Option("number", "of all", 0.5, least=0, most=1),
    "on": Option("boolean", "whether", False),
    "mode": Option("text", "which", "soft", choices=("soft", "hard")),
}


def test_texts_become_values_and_what_is_left_out_has_its_default():
    found = parse("p", SCHEMA, {"fields": " a, b ,", "on": "TRUE", "count": "9"})
    assert found == {"fields": ("a", "b"), "count": 9, "share": 0.5, "on": True, "mode": "soft"}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({}, "plugin.p.fields: must be set: fields to mask"),
        ({"fields": "a", "field": "b"}, "plugin.p.field: the plugin p has no such option"),
        ({"fields": "a", "count": "0"}, "plugin.p.count: 0 must be 1 or greater"),
        ({"fields": "a", "count": "10"}, "plugin.p.count: 10 must be 9 or less"),
        ({"fields": "a", "count": "1.5"}, "'1.5' is not a whole number"),
        ({"fields": "a", "share": "half"}, "'half' is not a number"),
        ({"fields": "a", "on": "yes"}, "must be true or false"),
        ({"fields": "a", "mode": "mild"}, "'mild' is not one of soft, hard"),
    ],
)
def test_a_wrong_text_is_one_plain_line(texts, words):
    with pytest.raises(BadOptions) as caught:
        parse("p", SCHEMA, texts)
    assert len(caught.value.problems) == 1
    assert words in caught.value.problems[0]


def test_all_problems_are_reported_at_once():
    with pytest.raises(BadOptions) as caught:
        parse("p", SCHEMA, {"count": "x", "on": "y"})
    assert len(caught.value.problems) == 3


def test_settings_of_one_plugin_are_kept_apart_from_those_of_another():
    settings = {"plugin.a.x": "1", "plugin.ab.x": "2", "plugin.a.y.z": "3", "plugins": "a"}
    assert options_of("a", settings) == {"x": "1", "y.z": "3"}


def test_the_brokers_options_are_parted_from_the_plugins():
    common, own = split({"isolation": "process", "fields": "a", "budget.ms": "5"})
    assert common == {"isolation": "process", "budget.ms": "5"} and own == {"fields": "a"}
    assert parse("p", COMMON, common)["isolation"] == "process"


@pytest.mark.parametrize("options", [[], {"a": "text"}, {"trace": Option("text", "mine", "")}])
def test_a_schema_that_is_none_is_refused(options):
    made = type("Plugin", (), {"OPTIONS": options})
    with pytest.raises(BadOptions):
        schema_of(made)
