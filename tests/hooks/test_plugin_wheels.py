"""plugins.path: a directory of wheels, one of them with C code. What is wrong with a wheel is one
line, and nothing of it is imported."""

import hashlib
import importlib
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from wheel_maker import best_tag, write_loud, write_wheel

from barnabas import Broker
from barnabas.cli import main
from barnabas.hooks import wheels
from barnabas.hooks.plugin import CannotLoad
from barnabas.hooks.wheels import add_wheels
from barnabas.testing.plugins import Sender

PLAIN = """
from barnabas import hookimpl

class Plain:
    @hookimpl
    def broker_stopping(self): pass
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of this test; what it puts on sys.path and imports goes away after it."""
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path / "cache" / "plugins"
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    importlib.invalidate_caches()


def write_plain(folder, name="plain", **more):
    return write_wheel(folder, name, {f"{name}.py": PLAIN}, entry=f"{name} = {name}:Plain", **more)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_plugin_with_c_code_runs_in_the_broker_and_in_its_own_process(tmp_path, isolation):
    write_loud(tmp_path / "wheels")
    settings = {
        "plugins.path": str(tmp_path / "wheels"),
        "plugins": "loud",
        "plugin.loud.isolation": isolation,
    }
    with Broker(settings) as broker:
        broker.create_topic("news", configs={"produce.interceptors": "loud"})
        with Sender(broker.bootstrap_servers) as sender:
            sender.send("news", [b"hello"])
        assert [row.value for row in broker.records("news")] == [b"HELLO"]
        assert ("loud" in sys.modules) == (isolation == "thread")


def test_commands_see_the_plugins_of_the_directory(tmp_path, capsys):
    write_plain(tmp_path / "wheels")
    place = ["--plugin-path", str(tmp_path / "wheels")]
    assert main(["plugins", "list", "--json", *place]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["plain"]["distribution"] == "plain"
    assert main(["plugins", "describe", "plain", *place]) == 0
    assert "hooks: broker_stopping" in capsys.readouterr().out
    assert main(["plugins", "list", "--plugin-path", str(tmp_path / "absent")]) == 1
    assert capsys.readouterr().err == (
        f"barnabas: plugins.path: {tmp_path / 'absent'}: No such file or directory.\n"
    )


def test_a_start_with_a_wheel_that_cannot_be_used_ends_with_one_line(tmp_path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "bad-1.0-py3-none-any.whl").write_bytes(b"PK\x03\x04 cut off")
    command = [sys.executable, "-m", "barnabas", "start", "--plugin-path", tmp_path / "wheels"]
    command += [
        "--set",
        f"log.dirs={tmp_path / 'data'}",
        "--set",
        "listeners=PLAINTEXT://127.0.0.1:0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    [line] = [row for row in done.stderr.splitlines() if row.startswith("barnabas: ")]
    assert "bad-1.0-py3-none-any.whl is damaged" in line and "Traceback" not in done.stderr


def test_a_wheel_is_unpacked_once(tmp_path, cache):
    wheel = write_plain(tmp_path / "wheels")
    [place] = add_wheels(str(tmp_path / "wheels"))
    assert Path(place) == cache / hashlib.sha256(wheel.read_bytes()).hexdigest()
    kept = (Path(place) / "plain.py").stat().st_ino
    assert add_wheels(str(tmp_path / "wheels"), [place]) == [place]
    assert (Path(place) / "plain.py").stat().st_ino == kept
    assert sys.path.count(place) == 1 and wheels.added() == [place]
    assert [row.name for row in cache.iterdir()] == [Path(place).name]  # no tmp directory is left


def test_a_reload_takes_the_new_version_and_forgets_the_old_one(tmp_path):
    before = write_plain(tmp_path / "wheels")
    first = add_wheels(str(tmp_path / "wheels"))
    before.unlink()
    write_plain(tmp_path / "wheels", version="2.0")
    second = add_wheels(str(tmp_path / "wheels"), first)
    assert wheels.added() == second != first
    assert metadata.version("plain") == "2.0"


def test_of_several_wheels_of_one_version_the_best_for_this_python_is_taken(tmp_path):
    write_plain(tmp_path / "wheels", tag="cp39-cp39-manylinux_2_28_x86_64")
    write_plain(tmp_path / "wheels")
    best = write_plain(tmp_path / "wheels", tag=best_tag())
    [place] = add_wheels(str(tmp_path / "wheels"))
    assert Path(place).name == hashlib.sha256(best.read_bytes()).hexdigest()


def problem(folder):
    before = list(sys.path)
    with pytest.raises(CannotLoad) as caught:
        add_wheels(str(folder))
    assert sys.path == before and all("\n" not in line for line in caught.value.problems)
    return " ".join(caught.value.problems)


def test_a_wheel_for_another_python_is_refused(tmp_path):
    write_plain(tmp_path / "wheels", tag="cp39-cp39-manylinux_2_28_x86_64")
    assert f"this is Python 3.{sys.version_info[1]} on {os.uname().machine}" in problem(
        tmp_path / "wheels"
    )


def test_two_versions_of_a_package_are_refused(tmp_path):
    write_plain(tmp_path / "wheels")
    write_plain(tmp_path / "wheels", version="2.0")
    assert "has plain 1.0 and 2.0. Remove all but one version." in problem(tmp_path / "wheels")


def test_a_package_that_a_wheel_requires_is_named(tmp_path):
    needs = [
        "barnabas>=0.1",
        "absent-package>=2",
        "never>1; python_version < '3'",
        "x; extra == 'y'",
    ]
    write_plain(tmp_path / "wheels", requires=needs)
    folder = tmp_path / "wheels"
    assert problem(folder) == (
        "plugins.path: plain 1.0 requires absent-package>=2; there is nothing."
        f" Put its wheel into {folder}."
    )
    write_plain(folder, name="absent-package", version="1.9")
    assert "there is version 1.9" in problem(folder)


@pytest.mark.parametrize("name", ["plain.whl", "no wheel-1.whl"])
def test_a_file_that_is_not_named_as_a_wheel_is_refused(tmp_path, name):
    write_plain(tmp_path / "wheels").rename(tmp_path / "wheels" / name)
    assert "is not named as a wheel is" in problem(tmp_path / "wheels")


def test_a_damaged_wheel_leaves_nothing_in_the_cache(tmp_path, cache):
    wheel = write_plain(tmp_path / "wheels")
    data = bytearray(wheel.read_bytes())
    data[45] ^= 0xFF  # in the compressed data of the first file
    wheel.write_bytes(data)
    assert "is damaged" in problem(tmp_path / "wheels")
    assert list(cache.iterdir()) == []


def test_a_wheel_writes_only_into_its_own_directory(tmp_path, cache):
    files = {"../../outside.py": "", "/absolute.py": "", "a-1.0.data/purelib/inside.py": "x = 1"}
    files |= {"a-1.0.data/scripts/run": "", "a-1.0.data/data/etc/x": ""}
    write_wheel(tmp_path / "wheels", "a", files)
    [place] = add_wheels(str(tmp_path / "wheels"))
    found = {row.name for row in Path(place).iterdir() if not row.name.endswith("-info")}
    assert {"inside.py", "outside.py", "absolute.py"} == found
    assert {row.name for row in tmp_path.iterdir()} == {"wheels", "cache"}
    assert not Path("/absolute.py").exists()


def test_a_wheel_that_unpacks_to_too_much_is_refused(tmp_path, cache, monkeypatch):
    write_plain(tmp_path / "wheels")
    monkeypatch.setattr(wheels, "UNPACKED_BYTES_MAX", 10)
    assert "unpacks to more than" in problem(tmp_path / "wheels")
    assert list(cache.iterdir()) == []


def test_a_cache_that_others_can_write_is_refused(tmp_path, cache):
    write_plain(tmp_path / "wheels")
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert f"chmod 700 {cache}" in problem(tmp_path / "wheels")
    assert list(cache.iterdir()) == []
