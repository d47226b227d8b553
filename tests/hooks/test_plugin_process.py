"""A plugin in a process of its own that raises, hangs, returns rubbish, leaks, crashes or exits:
each is a failed call, the broker's process continues, and the next call gets a new child
process."""

import json
import os
import time

import pytest
from installed_plugins import install

from barnabas.hooks.loading import load
from barnabas.hooks.plugin import CannotLoad
from barnabas.hooks.process import Child
from barnabas.hooks.registry import Later, Registry
from barnabas.hooks.views import Reject
from barnabas.testing.plugins import batch_of
from barnabas.wire.batches import batch_at

SOURCE = """
    import contextlib, ctypes, json, os, socket, sys, time
    from barnabas import hookimpl
    from barnabas.hooks import Option, Record, Reject, Replace

    class Broken:
        OPTIONS = {"file": Option("text", "where the pid goes", "")}

        def __init__(self, options):
            if options["file"] == "exit":
                os._exit(4)
            if options["file"] == "hidden":
                raise ValueError("not this one")
            self.kept = []

        @hookimpl
        def intercept_produce(self, batch):
            word = batch.records[0].value
            if word == b"raise":
                raise ValueError("raised")
            if word == b"hang":
                time.sleep(60)
            if word == b"exit":
                os._exit(3)
            if word == b"crash":
                ctypes.string_at(0)
            if word == b"leak":
                while True:
                    self.kept.append(bytearray(1 << 24))
            if word == b"rubbish":
                line = socket.socket(fileno=os.dup(int(sys.argv[1])))
                line.sendall(bytes([255] * 4) + b"rubbish")
            if word == b"other":
                return object()
            if word == b"pid":
                return Reject(str(os.getpid()))
            if word == b"told":
                shown = [f"{name}={text}" for name, text in os.environ.items()]
                for number in os.listdir("/proc/self/fd"):
                    with contextlib.suppress(OSError):
                        shown.append(os.readlink(f"/proc/self/fd/{number}"))
                return Reject(json.dumps(shown + sys.argv))
            if word == b"upper":
                return Replace([Record(row.value.upper()) for row in batch.records])
"""
OPTIONS = {"isolation": "process", "budget.ms": "4000", "failures.max": "0"}


@pytest.fixture
def registry(tmp_path, monkeypatch):
    install(tmp_path / "site", monkeypatch, "test-broken", SOURCE, broken="Broken")
    monkeypatch.setattr("barnabas.hooks.process.PAUSE_S", 0.001)
    settings = {f"plugin.broken.{key}": value for key, value in OPTIONS.items()}
    settings["plugin.broken.memory.max.bytes"] = str(1 << 30)
    found = Registry(lambda: settings)
    found.load(["broken"])
    yield found
    found.close()


def ask(registry, word):
    return registry.intercept_produce(["broken"], batch_of([word]))


def works(registry):
    """Waits until a call succeeds: the restart of a child may be delayed."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        made = ask(registry, b"upper")
        if isinstance(made, bytes):
            return [row.value for row in batch_at(memoryview(made), 0, 1 << 20).records]
        time.sleep(0.01)
    raise AssertionError(registry.plugin("broken").failures)


def test_a_plugin_in_a_process_answers_as_one_inside(registry):
    assert works(registry) == [b"UPPER"]
    assert ask(registry, b"anything") is None
    said = ask(registry, b"pid")
    assert int(said.message) != os.getpid()
    assert "in its own process" in registry.plugin("broken").said()


@pytest.mark.parametrize("word", [b"raise", b"other"])
def test_a_failure_in_the_child_leaves_the_child(registry, word):
    before = ask(registry, b"pid").message
    assert "failed for" in ask(registry, word).message
    assert ask(registry, b"pid").message == before


@pytest.mark.parametrize("word", [b"exit", b"crash", b"rubbish", b"leak", b"hang"])
def test_whatever_a_child_does_the_next_call_finds_another(registry, word):
    before = ask(registry, b"pid").message
    began = time.monotonic()
    found = ask(registry, word)
    if word == b"hang":
        assert isinstance(found, Later) and "longer than its budget" in found.message
    else:
        assert isinstance(found, Reject) and "failed for" in found.message
    assert time.monotonic() - began < 10
    plugin = registry.plugin("broken")
    assert plugin.off == "" and sum(plugin.failures.values()) == 1
    assert works(registry) == [b"UPPER"]
    assert ask(registry, b"pid").message != before


SECRETS = {
    "KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/secret.jaas",
    "KAFKA_SSL_KEY_PASSWORD": "secret-of-the-key",
    "KAFKA_CFG_SASL_JAAS_CONFIG": "secret-of-a-login",
    "BARNABAS_ZOOKEEPER_AUTH": "digest:me:secret-of-zookeeper",
    "STORE_PASSWORD": "secret-that-a-setting-refers-to",
    "AWS_SECRET_ACCESS_KEY": "secret-of-a-cloud",
    "PGPASSWORD": "secret-of-a-database",
}


def told(tmp_path, monkeypatch, **options):
    """What the process of a plugin has: variables, descriptors, arguments, and the first frame
    from the broker."""
    install(tmp_path / "site", monkeypatch, "test-broken", SOURCE, broken="Broken")
    for name, text in SECRETS.items():
        monkeypatch.setenv(name, text)
    settings = {f"plugin.broken.{key}": text for key, text in {**OPTIONS, **options}.items()}
    settings |= {"ssl.key.password": "secret-setting", "plugin.other.key": "secret-of-another"}
    with open(tmp_path / "secret-file", "w") as held:
        os.set_inheritable(held.fileno(), True)
        found = Registry(lambda: settings)
        try:
            found.load(["broken"])
            child = found.plugin("broken").close.__self__
            return json.loads(ask(found, b"told").message), str(child._asked)
        finally:
            found.close()


def test_the_process_of_a_plugin_gets_only_its_own_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    shown, first_frame = told(tmp_path, monkeypatch)
    assert not [text for text in shown if "secret" in text.lower()]
    assert "secret" not in first_frame
    names = {text.partition("=")[0] for text in shown}
    assert {"PATH", "LC_ALL"} <= names and not names & SECRETS.keys()
    assert len([text for text in shown if text.startswith("socket:")]) == 1


def test_the_process_of_a_plugin_gets_the_variables_that_its_option_names(tmp_path, monkeypatch):
    shown, _ = told(tmp_path, monkeypatch, environment="PGPASSWORD,ABSENT")
    assert [text for text in shown if "secret" in text] == ["PGPASSWORD=secret-of-a-database"]


def test_a_child_that_keeps_dying_is_not_started_again_at_once(registry, monkeypatch):
    monkeypatch.setattr("barnabas.hooks.process.PAUSE_S", 30.0)
    child = registry.plugin("broken").close.__self__
    assert isinstance(child, Child)
    ask(registry, b"exit")  # the first restart is at once
    for _ in range(20):
        ask(registry, b"exit")
    assert child.starts <= 3


@pytest.mark.parametrize(
    ("file", "words"), [("exit", "its process ended"), ("hidden", "ValueError: not this one")]
)
def test_a_plugin_that_cannot_be_made_in_its_process_is_reported(registry, file, words):
    with pytest.raises(CannotLoad, match=words):
        load("broken", OPTIONS | {"file": file})


def test_no_child_outlives_the_registry(registry):
    pid = int(ask(registry, b"pid").message)
    registry.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
