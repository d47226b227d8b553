"""A plugin is found by name, imported, checked and reloaded; and the errors when that fails."""

import logging
import sys

import pytest
from installed_plugins import install

from barnabas.hooks import specs
from barnabas.hooks.builtin import BUILTIN
from barnabas.hooks.loading import installed, load
from barnabas.hooks.plugin import CannotLoad
from barnabas.hooks.registry import Registry
from barnabas.testing.plugins import batch_of

SOURCE = """
    from barnabas import hookimpl
    from barnabas.hooks import Option, Reject

    class Longest:
        '''Refuses long values.'''
        OPTIONS = {"bytes": Option("integer", "of a value", least=0)}

        def __init__(self, options):
            if options["bytes"] == 13:
                raise RuntimeError("unlucky")
            self.bytes = options["bytes"]

        @hookimpl
        def intercept_produce(self, batch):
            if any(len(record.value) > self.bytes for record in batch.records):
                return Reject("too long")

    class Plain:
        @hookimpl
        def should_flush(self, log):
            return True

    class Wrong:
        @hookimpl
        def intercept_produced(self, batch):
            pass

    class Arguments:
        @hookimpl
        def intercept_produce(self, batch, partition):
            pass
"""


@pytest.fixture
def longest(tmp_path, monkeypatch):
    entries = {"longest": "Longest", "plain_one": "Plain", "wrong": "Wrong"}
    entries |= {"arguments": "Arguments", "missing": "Missing"}
    install(tmp_path / "site", monkeypatch, "test-longest", SOURCE, "2.5", **entries)
    return tmp_path / "site"


def test_an_installed_plugin_is_made_with_its_options(longest):
    plugin = load("longest", {"bytes": "3", "budget.ms": "77"})
    assert (plugin.name, plugin.version, list(plugin.hooks)) == (
        "longest", "2.5", ["intercept_produce"],
    )  # fmt: skip
    assert plugin.path == str(longest / "test_longest.py")
    assert plugin.made.bytes == 3 and plugin.common["budget.ms"] == 77
    assert "plugin longest 2.5 from " in plugin.said() and "intercept_produce" in plugin.said()


def test_only_plugins_that_are_named_run_and_the_start_says_which(longest, caplog):
    """Its distribution has others."""
    caplog.set_level(logging.INFO)
    registry = Registry(lambda: {"plugin.longest.bytes": "1"})
    registry.load(["longest"])
    assert registry.names() == ["longest"]
    line = f"plugin longest 2.5 from {longest / 'test_longest.py'}: intercept_produce"
    assert [row.getMessage() for row in caplog.records].count(line) == 1
    registry.close()


@pytest.mark.parametrize(
    ("name", "texts", "words"),
    [
        ("nobody", {}, "the plugin 'nobody' is not installed"),
        ("longest", {}, "plugin.longest.bytes: must be set"),
        ("longest", {"bytes": "x"}, "'x' is not a whole number"),
        ("longest", {"bytes": "13"}, "cannot create plugin longest: RuntimeError: unlucky"),
        ("longest", {"bytes": "1", "isolation": "yes"}, "not one of thread, process"),
        ("plain-one", {"bytes": "3"}, "plugin.plain-one.bytes: the plugin plain-one has no such"),
        ("wrong", {}, "unknown hook 'intercept_produced'"),
        ("arguments", {}, "Argument(s) {'partition'}"),
        ("missing", {}, "AttributeError"),
    ],
)
def test_what_cannot_be_loaded_is_one_plain_line(longest, name, texts, words):
    with pytest.raises(CannotLoad) as caught:
        load(name, texts)
    assert len(caught.value.problems) == 1
    assert words in caught.value.problems[0] and "\n" not in caught.value.problems[0]


def test_one_plugin_runs_twice_under_two_names(longest):
    settings = {"plugin.a.use": "longest", "plugin.a.bytes": "1"}
    settings |= {"plugin.b.use": "longest", "plugin.b.bytes": "5"}
    registry = Registry(lambda: settings)
    registry.load(["a", "b"])
    assert registry.intercept_produce(["a"], batch_of([b"abc"])) is not None
    assert registry.intercept_produce(["b"], batch_of([b"abc"])) is None
    registry.close()


def test_all_problems_of_a_set_are_reported_and_nothing_runs(longest):
    registry = Registry(lambda: {"plugin.longest.bytes": "1"})
    with pytest.raises(CannotLoad) as caught:
        registry.load(["nobody", "longest", "wrong"])
    assert len(caught.value.problems) == 2
    assert registry.names() == []
    assert len(registry.check(["nobody", "wrong"])) == 2
    assert registry.check(["longest"]) == []


def test_two_distributions_with_one_name_are_refused(longest, monkeypatch):
    install(longest, monkeypatch, "test-other", SOURCE, longest="Longest")
    with pytest.raises(CannotLoad, match="a plugin of test-longest, test-other"):
        load("longest", {"bytes": "1"})


def test_a_reload_takes_over_new_code_and_a_broken_one_changes_nothing(longest, monkeypatch):
    settings = {"plugin.longest.bytes": "1"}
    registry = Registry(lambda: settings)
    registry.load(["longest"])
    before = registry.plugin("longest")
    changed = SOURCE.replace('Reject("too long")', 'Reject("much too long")')
    install(longest, monkeypatch, "test-longest", changed, "2.5", longest="Longest")
    sys.modules["test_longest"] = sys.modules[type(before.made).__module__] = __import__(
        "test_longest"
    )
    registry.forget_code(["longest"])
    registry.reload(["longest"])
    assert registry.intercept_produce(["longest"], batch_of([b"ab"])).message == "much too long"
    running = registry.plugin("longest")
    with pytest.raises(CannotLoad):
        registry.reload(["longest", "nobody"])
    assert registry.plugin("longest") is running is not before
    registry.close()


def test_every_built_in_is_found_and_a_class_with_hooks():
    rows = {row.name: row for row in installed()}
    assert BUILTIN.keys() <= rows.keys()
    for name in ("time", "size", "none"):
        assert load(name, {}).hooks


def test_hooks_are_listed_in_the_order_of_their_specifications():
    assert specs.names()[:3] == ["deletable_segments", "intercept_produce", "intercept_fetch"]
    own = [name for name in specs.names() if name in vars(specs.Specs)]
    assert all(specs.budget_ms(name) > 0 for name in own)
    # The clients' hooks are called directly, and are listed after the broker's.
    assert own == specs.names()[: len(own)]
    assert all(specs.budget_ms(name) == 0 for name in specs.names()[len(own) :])


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_plugin_without_hookimpl_is_an_error(tmp_path, monkeypatch, isolation):
    """It was loaded, and topics that named it kept all segments without a warning."""
    source = """
        class Forgot:
            def deletable_segments(self, log, now_ms):
                return 0

        class Nothing:
            def other(self):
                pass
    """
    install(
        tmp_path / "site", monkeypatch, "test-forgot", source, forgot="Forgot", hookless="Nothing"
    )
    options = {} if isolation == "none" else {"isolation": isolation}
    with pytest.raises(CannotLoad, match=r"forgot: deletable_segments .* lacks @hookimpl"):
        load("forgot", options)
    with pytest.raises(CannotLoad, match="plugin hookless implements no hook"):
        load("hookless", options)


class Former:
    """A plugin that was written for 0.1.0."""

    def __init__(self):
        self.seen = []

    @specs.hookimpl
    def report_metrics(self, now_ms, figures):
        self.seen.append((now_ms, figures))

    @specs.hookimpl
    def own_figures(self):
        return {"seen": {"t": float(len(self.seen))}}


def test_hooks_and_arguments_of_0_1_0_work_with_a_warning():
    registry, made = Registry(), Former()
    with pytest.warns(DeprecationWarning) as warned:
        plugin = registry.register(made, "former")
    assert sorted(str(row.message) for row in warned) == [
        "the argument figures of report_metrics is metrics now",
        "the hook own_figures is own_metrics now",
    ]
    registry.tell_all("report_metrics", {"metrics": {"a": 1.0}, "now_ms": 5})
    assert made.seen == [(5, {"a": 1.0})]
    assert registry.own_metrics(plugin) == {"seen": {"t": 1.0}}
    registry.close()
