"""`barnabas storage import` by copies, killed before any of its calls.

The source stays as it was, no broker starts on a half-made directory, and the next run begins
again. It removes only what such a run has made."""

import shutil
from pathlib import Path

import pytest
from long_form import pick
from takeover.importing import calls_of, content, files, import_to, killed_before, kills
from takeover.kafka_before import NEWS, recorded

from barnabas import Broker
from barnabas.cli import main
from barnabas.node import CannotStart

META = "meta.properties"
UNFINISHED, COMPLETE = "barnabas-import-unfinished", "barnabas-import-complete"


@pytest.fixture
def newest(tmp_path):
    return recorded("4.3.1", tmp_path / "kafka")


@pytest.fixture
def two(tmp_path, newest):
    """Returns two log directories of one broker of Kafka."""
    second = tmp_path / "second"
    second.mkdir()
    for name in (META, ".kafka_cleanshutdown"):
        shutil.copy(newest / name, second / name)
    (newest / f"{NEWS}-1").rename(second / f"{NEWS}-1")
    return newest, second


def refuses_to_start(data):
    with pytest.raises(CannotStart, match="`barnabas storage import` has not finished its work"):
        Broker({"log.dirs": str(data)}).start()


def imported_again(capsys, data, newest, whole):
    assert import_to(capsys, data, newest) == whole
    for folder in sorted(newest.glob("*-[0-9]")):
        if folder.name != "__cluster_metadata-0":
            assert files(data / folder.name) == files(folder)
    assert not (data / UNFINISHED).exists()


@pytest.mark.timeout(pick(short=300, long=3600))
def test_a_kill_leaves_the_source_as_it_was_and_the_next_run_imports_all(tmp_path, capsys, newest):
    before, data = content(newest), tmp_path / "killed"
    whole = import_to(capsys, data, newest)
    shutil.rmtree(data)
    words = ["import", newest, "--set", f"log.dirs={data}"]
    for call in kills(calls_of(data, *words), 2, 60, last=3):
        shutil.rmtree(data)
        killed_before(call, data, *words)
        assert content(newest) == before
        if (data / UNFINISHED).exists():
            refuses_to_start(data)
        else:
            assert (data / COMPLETE).exists() or not (data / META).exists()
        imported_again(capsys, data, newest, whole)


@pytest.mark.timeout(pick(short=300, long=3600))
def test_a_kill_while_a_complete_import_is_repeated(tmp_path, capsys, newest):
    """The second run is killed while it removes what the first has made, and later."""
    data, made = tmp_path / "killed", tmp_path / "made"
    words = ["import", newest, "--set", f"log.dirs={data}"]
    whole = import_to(capsys, data, newest)
    shutil.copytree(data, made)
    for call in kills(calls_of(data, *words), 5, last=1):
        shutil.rmtree(data)
        shutil.copytree(made, data)
        killed_before(call, data, *words)
        imported_again(capsys, data, newest, whole)


@pytest.mark.timeout(pick(short=300, long=3600))
def test_a_kill_of_an_import_into_two_directories(tmp_path, capsys, two):
    data = tmp_path / "killed"
    both = f"{data / 'a'},{data / 'b'}"
    words = ["import", *two, "--set", f"log.dirs={both}"]
    calls = calls_of(data, *words)
    whole = {name: files(data / name) for name in (f"a/{NEWS}-0", f"b/{NEWS}-1")}
    for call in kills(calls, 3, last=6):
        shutil.rmtree(data)
        killed_before(call, data, *words)
        if (data / "a" / UNFINISHED).exists():
            refuses_to_start(both)
        import_to(capsys, both, *two)
        assert {name: files(data / name) for name in whole} == whole
        assert not list(data.glob(f"*/{UNFINISHED}"))


# -- what an import does not remove


def half_made(newest, data):
    """Makes a directory in which an import was killed."""
    killed_before(60, data, "import", newest, "--set", f"log.dirs={data}")
    assert (data / UNFINISHED).exists() and (data / META).exists()
    return data


def refused(capsys, data, *sources):
    """Returns the line of an import that is refused, and has changed nothing."""
    paths = list(map(str, data)) if isinstance(data, tuple) else [str(data)]
    folders = [Path(path) for path in paths]
    for folder in folders:
        (folder / ".lock").unlink(missing_ok=True)
    before = [content(folder) for folder in folders]
    (line,) = import_to(capsys, ",".join(paths), *sources, status=1)
    assert [content(folder) for folder in folders] == before
    return line


def test_the_work_of_another_import_is_refused(tmp_path, capsys, newest):
    data = half_made(newest, tmp_path / "new")
    elsewhere = shutil.copytree(newest, tmp_path / "elsewhere")
    line = refused(capsys, data, elsewhere)
    assert "the work of another import" in line and str(data / UNFINISHED) in line
    import_to(capsys, data, newest)
    assert "the work of another import" in refused(capsys, data, elsewhere)


def test_a_file_of_someone_else_in_a_half_made_directory_is_refused(tmp_path, capsys, newest):
    data = half_made(newest, tmp_path / "new")
    (data / "precious").write_text("mine")
    assert f"{data / 'precious'} is not of the import" in refused(capsys, data, newest)
    (data / "precious").unlink()
    import_to(capsys, data, newest)


def test_a_second_directory_that_is_kafkas_is_refused(tmp_path, capsys, newest):
    """It has the id of the same cluster, as those of other brokers have."""
    data, other = half_made(newest, tmp_path / "new"), tmp_path / "other"
    (other / f"{NEWS}-0").mkdir(parents=True)
    shutil.copy(newest / META, other / META)
    (other / f"{NEWS}-0" / f"{0:020d}.log").write_bytes(b"records")
    assert f"{other} is not empty" in refused(capsys, (data, other), newest)


@pytest.mark.parametrize("name", ["metadata", "metadata/metadata.db"])
def test_a_directory_with_a_folder_called_metadata_is_refused(tmp_path, capsys, newest, name):
    (tmp_path / "new" / "metadata").mkdir(parents=True)
    if "/" in name:
        (tmp_path / "new" / name).write_bytes(b"")
    assert "is not empty" in refused(capsys, tmp_path / "new", newest)


def test_verify_names_a_half_made_directory(tmp_path, capsys, newest):
    data = half_made(newest, tmp_path / "new")
    assert main(["storage", "verify", str(data)]) == 1
    text = capsys.readouterr().out
    assert f"{data / UNFINISHED}" in text and "run the import again" in text


@pytest.mark.parametrize("version", ["0.8.2.2", "0.11.0.3"])
def test_a_broker_leaves_a_directory_of_old_kafka_as_it_is(tmp_path, version):
    """The first one has no meta.properties, the second one no id of a cluster."""
    kafka = recorded(version, tmp_path / "kafka")
    if version == "0.11.0.3":
        meta = (kafka / META).read_text()
        (kafka / META).write_text("".join(x for x in meta.splitlines(True) if "cluster" not in x))
    before = content(kafka)
    with pytest.raises(CannotStart, match="has partitions, such as .*`barnabas storage import`"):
        Broker({"log.dirs": str(kafka)}, durable=False).start()
    assert {**content(kafka), ".lock": 0} == {**before, ".lock": 0}


def test_what_a_broker_has_used_is_refused(tmp_path, capsys, newest):
    data = tmp_path / "new"
    import_to(capsys, data, newest)
    assert import_to(capsys, data, newest)["partitions"]  # no broker has started on it
    with Broker({"log.dirs": data}, durable=False):
        pass
    assert f"{data} is not empty" in refused(capsys, data, newest)


def test_an_import_without_space_leaves_no_mark(tmp_path, capsys, newest, monkeypatch):
    from barnabas.takeover import copied_import

    monkeypatch.setattr(copied_import, "disk_space", lambda _path: (1 << 40, 1))
    (line,) = import_to(capsys, tmp_path / "new", newest, status=1)
    assert "are free" in line and not list((tmp_path / "new").iterdir())
