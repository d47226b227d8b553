"""`barnabas plugins`: the list, the descriptions, and the project that `new` creates."""

import json
import subprocess
import sys

import pytest
from installed_plugins import install

from barnabas.cli import main
from barnabas.cli.plugins import HOOKS
from barnabas.hooks.project_kinds import KINDS


def test_built_ins_and_others_are_listed(tmp_path, monkeypatch, capsys):
    source = '''
        class Mine:
            """Does a thing.

            In some way.
            """
    '''
    install(tmp_path / "site", monkeypatch, "test-mine", source, "3.1", mine="Mine", no="Gone")
    assert main(["plugins", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["mine"] == {
        "name": "mine",
        "version": "3.1",
        "distribution": "test-mine",
        "what": "Does a thing.",
    }
    assert rows["json-schema"]["distribution"] == "barnabas"
    assert "cannot import" in rows["no"]["what"]
    assert main(["plugins", "list"]) == 0
    assert "Does a thing." in capsys.readouterr().out


def test_a_plugin_is_described_with_hooks_and_options(capsys):
    assert main(["plugins", "describe", "last-records"]) == 0
    said = capsys.readouterr().out
    assert "hooks: deletable_segments" in said
    assert "plugin.last-records.count" in said and "(must be set)" in said
    assert "plugin.last-records.isolation" in said
    assert main(["plugins", "describe", "nobody"]) == 1
    assert "the plugin 'nobody' is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Redact", "two--hyphens", "-x", "x y", "../x", "1x", "x" * 61])
def test_a_name_that_is_none_is_refused(tmp_path, name, capsys):
    assert main(["plugins", "new", "--into", str(tmp_path), "--", name]) == 1
    assert "is not a valid name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["queue", "pytest", "asyncio", "time"])
def test_a_new_plugin_hides_no_module(tmp_path, name, capsys):
    """F35: `plugins new time` made a module that took the place of Python's."""
    assert main(["plugins", "new", name, "--into", str(tmp_path)]) == 1
    assert "Choose another name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_two_plugins_of_one_name_are_said(tmp_path, monkeypatch, capsys):
    """F35: the list showed both, and not that neither is loaded, nor that a built-in one wins."""
    source = """
        class Mine:
            pass
    """
    install(tmp_path / "one", monkeypatch, "first-dist", source, "1", twin="Mine", hash="Mine")
    install(tmp_path / "two", monkeypatch, "second-dist", source, "1", twin="Mine")
    assert main(["plugins", "list"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "hash of first-dist cannot be loaded: barnabas has a built-in plugin hash. Give it another"
        " name in its entry point.",
        "twin is a plugin of first-dist, second-dist; the broker loads none."
        " Uninstall all but one.",
    ]
    assert main(["plugins", "describe", "twin"]) == 1
    assert "Uninstall all but one" in capsys.readouterr().err


@pytest.mark.parametrize("kind", HOOKS)
def test_a_new_project_installs_and_its_tests_pass(tmp_path, kind):
    """F35: each kind of plugin, not an interceptor whatever was wanted."""
    new = ["plugins", "new", "no-long-ones", "--hook", kind, "--into", str(tmp_path)]
    assert main(new) == 0
    project, site = tmp_path / "no-long-ones", tmp_path / "site"
    assert sorted(path.name for path in project.iterdir()) == [
        "README.md", "no_long_ones.py", "pyproject.toml", "test_no_long_ones.py",
    ]  # fmt: skip
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(project)], check=True)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(project)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0 and "2 passed" in ran.stdout, ran.stdout + ran.stderr
    assert main(new) == 1


def test_the_kinds_are_those_that_the_command_offers():
    assert tuple(KINDS) == HOOKS
