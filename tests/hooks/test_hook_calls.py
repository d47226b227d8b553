"""Calls of hooks: budgets, abandoned threads, and failures that are counted, logged, and disable a
plugin."""

import logging
import threading
import time

import pytest
from waiting import soon

from barnabas.hooks.calls import FAILED, Calls
from barnabas.hooks.options import COMMON, parse
from barnabas.hooks.plugin import Implementation, Plugin

HOOK = "intercept_produce"


def plugin_of(function, *arguments, **options):
    texts = {key.replace("_", "."): str(value) for key, value in options.items()}
    row = Implementation(function, arguments)
    return Plugin("p", {HOOK: row}, common=parse("p", COMMON, texts))


def test_a_hook_gets_the_arguments_that_it_takes_on_a_thread_of_its_plugin():
    found = []

    def function(second):
        found.append((second, threading.current_thread().name))
        return second * 2

    calls = Calls()
    assert calls.call(plugin_of(function, "second"), HOOK, {"first": 1, "second": 2}) == 4
    assert found == [(2, "plugin-p")]


def test_threads_are_used_again_and_end_with_the_plugin():
    seen = set()
    plugin = plugin_of(lambda: seen.add(threading.get_ident()))
    calls = Calls()
    for _ in range(20):
        calls.call(plugin, HOOK, {})
    assert len(seen) == 1
    calls.close(plugin)
    soon(lambda: not any(t.ident in seen for t in threading.enumerate()))


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_hook_raises_is_a_failure_and_no_more(error):
    def function():
        raise error

    plugin, calls = plugin_of(function), Calls()
    assert calls.call(plugin, HOOK, {}) is FAILED
    assert plugin.failures[HOOK] == plugin.calls[HOOK] == 1
    assert plugin.off == ""


def test_an_answer_that_the_contract_does_not_allow_is_a_failure():
    def check(answer):
        raise ValueError(answer)

    plugin = plugin_of(lambda: "rubbish")
    assert Calls().call(plugin, HOOK, {}, check) is FAILED
    assert plugin.failures[HOOK] == 1


def test_a_call_beyond_its_budget_is_answered_in_time_and_its_thread_left_behind():
    go_on = threading.Event()
    plugin, calls = plugin_of(lambda: go_on.wait(30), budget_ms=20, abandoned_max=3), Calls()
    began = time.monotonic()
    assert calls.call(plugin, HOOK, {}) is FAILED
    assert 0.02 <= time.monotonic() - began < 5
    assert (plugin.overruns, plugin.abandoned, plugin.off) == (1, 1, "")
    go_on.set()
    soon(lambda: plugin.abandoned == 0)
    assert calls.call(plugin, HOOK, {}) is True
    assert plugin.in_a_row == 0


def test_a_plugin_that_hangs_is_put_off_after_so_many_threads(caplog):
    go_on, before = threading.Event(), set(threading.enumerate())
    plugin, calls = plugin_of(lambda: go_on.wait(30), budget_ms=10, abandoned_max=3), Calls()
    for _ in range(10):
        assert calls.call(plugin, HOOK, {}) is FAILED
    assert "3 calls have not returned" in plugin.off
    assert len(caplog.records) == 2 and "switched off: 3 calls have not returned" in caplog.text
    assert plugin.overruns == plugin.calls[HOOK] == 3
    hanging = set(threading.enumerate()) - before
    assert len(hanging) == 3
    go_on.set()
    soon(lambda: not any(thread.is_alive() for thread in hanging))


def test_failures_in_a_row_put_a_plugin_off_and_a_success_between_them_does_not():
    answers = [False, False, True, False, False, False]

    def function():
        if not answers.pop(0):
            raise ValueError

    plugin, calls = plugin_of(function, failures_max=3), Calls()
    for _ in range(5):
        calls.call(plugin, HOOK, {})
    assert plugin.off == ""
    calls.call(plugin, HOOK, {})
    assert "3 failures in a row" in plugin.off
    calls.call(plugin, HOOK, {})
    assert plugin.calls[HOOK] == 6


def test_a_failure_is_written_to_the_log_once_a_minute(caplog):
    now_ns = [10**12]

    def function():
        raise ValueError("broken")

    plugin, calls = plugin_of(function, failures_max=0), Calls(lambda: now_ns[0])
    with caplog.at_level(logging.ERROR, "barnabas.hooks"):
        for _ in range(30):
            calls.call(plugin, HOOK, {})
            now_ns[0] += 1_000_000_000
        assert len(caplog.records) == 1
        now_ns[0] += 31_000_000_000
        calls.call(plugin, HOOK, {})
    assert len(caplog.records) == 2
    assert "30 failures since the last line" in caplog.text and "broken" in caplog.text


def test_the_trace_prints_each_call_with_its_time(capsys):
    plugin = plugin_of(lambda: None, trace="true")
    Calls().call(plugin, HOOK, {})
    said = capsys.readouterr().err
    assert said.startswith(f"hook {HOOK} of p: done, ") and said.endswith(" us\n")


def test_calls_of_one_plugin_from_many_threads_have_each_their_own_answer():
    plugin, calls = plugin_of(lambda number: number + 1, "number"), Calls()
    wrong = []

    def run(base):
        for number in range(base, base + 300):
            if calls.call(plugin, HOOK, {"number": number}) != number + 1:
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(1000 * i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and plugin.calls[HOOK] == 1800
