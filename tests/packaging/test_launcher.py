"""The launcher of the one-file executable, with a folder that holds a shell script: it unpacks once
and runs nothing that another user could have written. What keeps it from starting is one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCHER = Path(__file__).resolve().parents[2] / "release" / "launcher"

pytestmark = pytest.mark.skipif(
    not Path("/usr/include/zstd.h").exists(), reason="no headers of zstd (libzstd-dev)"
)


def build(folder, defines="", script='echo "$0" "$@"\nexit 7'):
    program = folder / "program"
    (program / "deep" / "er").mkdir(parents=True)
    (program / "deep" / "er" / "data").write_bytes(bytes(range(256)) * 400)
    (program / "deep" / "link").symlink_to("er/data")
    (program / "barnabas").write_text(f"#!/bin/sh\n{script}\n")
    (program / "barnabas").chmod(0o755)
    made = folder / "onefile"
    environ = os.environ | {"LAUNCHER_DEFINES": defines}
    subprocess.run([LAUNCHER, sys.executable, program, made, "3"], check=True, env=environ)
    return made


@pytest.fixture(scope="module")
def onefile(tmp_path_factory):
    return build(tmp_path_factory.mktemp("built"))


def run(onefile, cache, *arguments, **more):
    environ = {"PATH": os.environ["PATH"], "CACHE_DIRECTORY": str(cache)} | more
    return subprocess.run([onefile, *arguments], env=environ, capture_output=True, text=True)


def refusal(done):
    [line] = done.stderr.splitlines()
    assert done.returncode == 1 and done.stdout == "" and line.startswith("barnabas: ")
    return line


def test_the_folder_is_unpacked_once_and_its_program_gets_arguments_and_status(onefile, tmp_path):
    done = run(onefile, tmp_path, "a", "b c")
    [place] = (tmp_path / "onefile").iterdir()
    assert (done.returncode, done.stdout) == (7, f"{place}/barnabas a b c\n")
    assert (place / "deep" / "link").read_bytes() == bytes(range(256)) * 400
    assert place.stat().st_mode & 0o77 == 0
    (place / "deep" / "er" / "data").write_text("kept")
    assert run(onefile, tmp_path).returncode == 7
    assert (place / "deep" / "link").read_text() == "kept"


def test_starts_beside_each_other_unpack_to_one_place(onefile, tmp_path):
    environ = {"CACHE_DIRECTORY": str(tmp_path)}
    running = [
        subprocess.Popen([onefile], env=environ, stdout=subprocess.DEVNULL) for _ in range(6)
    ]
    assert [one.wait(60) for one in running] == [7] * 6
    assert len(list((tmp_path / "onefile").iterdir())) == 1


@pytest.mark.parametrize("which", ["store", "place"])
def test_a_folder_that_others_can_write_is_not_run(onefile, tmp_path, which):
    run(onefile, tmp_path)
    store = tmp_path / "onefile"
    [place] = store.iterdir()
    (store if which == "store" else place).chmod(0o777)
    assert "can be written by others" in refusal(run(onefile, tmp_path))


def test_a_place_that_is_a_link_is_not_run(onefile, tmp_path):
    run(onefile, tmp_path)
    [place] = (tmp_path / "onefile").iterdir()
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert "belongs to another user" in refusal(run(onefile, tmp_path))


def test_a_place_that_cannot_be_written_is_named(onefile, tmp_path):
    (tmp_path / "file").touch()
    said = refusal(run(onefile, tmp_path / "file" / "cache"))
    assert "Not a directory" in said and "Set CACHE_DIRECTORY to a directory" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
@pytest.mark.parametrize(
    ("options", "words"),
    [("noexec", "mounted noexec. Set CACHE_DIRECTORY"), ("size=40k", "No space left on device")],
)
def test_a_file_system_that_is_noexec_or_full_is_named(onefile, tmp_path, options, words):
    mount = 'mount -t tmpfs -o "$1" tmpfs "$2"; shift 2; "$@"; s=$?; ls "$CACHE_DIRECTORY/onefile"'
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f"{mount}; exit $s",
        "sh",
        options,
        tmp_path,
        onefile,
    ]
    environ = {"PATH": os.environ["PATH"], "CACHE_DIRECTORY": str(tmp_path / "cache")}
    done = subprocess.run([*command, onefile], env=environ, capture_output=True, text=True)
    assert done.returncode == 1 and words in done.stderr
    assert "tmp." not in done.stdout  # what was unpacked half-way is removed


def test_a_glibc_that_is_too_old_is_named(tmp_path):
    made = build(tmp_path, "-UGLIBC_MINOR -DGLIBC_MINOR=99")
    said = refusal(run(made, tmp_path / "cache"))
    assert "this system has glibc 2." in said and "needs 2.99 or newer" in said


def test_a_new_build_removes_those_that_do_not_run(onefile, tmp_path):
    store = tmp_path / "cache" / "onefile"
    waiting = build(tmp_path / "waiting", script="echo runs; read line; echo $line")
    environ = {"CACHE_DIRECTORY": str(store.parent)}
    with subprocess.Popen(
        [waiting], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout.readline() == "runs\n"
        [old] = store.iterdir()
        assert run(build(tmp_path / "ended", script="exit 5"), store.parent).returncode == 5
        [ended] = set(store.iterdir()) - {old}
        left, young = store / "tmp.killed", store / "tmp.other"
        left.mkdir(), young.mkdir()
        os.utime(left, (1, 1))

        assert run(onefile, store.parent).returncode == 7
        assert {old, young} < set(store.iterdir()) and not {ended, left} & set(store.iterdir())
        assert running.communicate("still here\n") == ("still here\n", None)
    assert run(build(tmp_path / "newest", script="exit 3"), store.parent).returncode == 3
    assert old not in store.iterdir()


def test_starts_while_others_remove_and_unpack(onefile, tmp_path):
    """Two builds in turn: each start finds its folder, or makes it again."""
    other = build(tmp_path / "other", script="exit 7")
    environ = {"CACHE_DIRECTORY": str(tmp_path / "cache")}
    running = [
        subprocess.Popen([one], env=environ, stdout=subprocess.DEVNULL)
        for one in [onefile, other] * 15
    ]
    assert [one.wait(60) for one in running] == [7] * 30


def test_the_same_folder_makes_the_same_bytes(onefile, tmp_path):
    assert build(tmp_path).read_bytes() == onefile.read_bytes()
