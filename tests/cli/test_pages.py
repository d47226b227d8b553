"""Runs the blocks of each page of docs/, in their order, in one folder, with a broker.

Shell and Python run, properties are read as settings of a broker, TOML and YAML are parsed. A new
block is run too; one that cannot run needs a line in tests/cli/not_run.tsv."""

import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from cli.shown import NOT_RUN, ROOT, Block, Needs, Shell, blocks, commands, runs, stage
from installed_plugins import install

pytestmark = pytest.mark.takes(seconds=20)
PAGES = {
    str(page.relative_to(ROOT)): blocks(page.read_text())
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if "```" in page.read_text()
}
KAFKA_FILE = "{root}/tests/config/stock/kafka-4.3.1.properties"
TWICE = "barnabas topics create news --partitions 2\nprintf 'a\\nb\\n' | barnabas produce news\n"
NEWS = "echo hello | barnabas produce news\n"
READERS = "barnabas groups reset readers --topic news --to earliest\n"
# Classes of docs/hooks.md, which its settings name.
PLUGINS = {
    "no-secrets": "NoSecrets",
    "no-long-ones": "NoLongOnes",
    "keep-ten": "KeepTen",
    "vip-first": "VipFirst",
    "capitals": "Capitals",
    "team-names": "TeamNames",
}
NEEDS = {
    "docs/backup.md": Needs(
        replaced={
            "-C /var/lib/barnabas": "-C {stopped}",
            "backup /var/lib/barnabas": "backup {stopped}",
            "backup:9092": "{other}",
            "--source 127.0.0.1:9092": "--source {broker}",
        },
        shown=("was closed cleanly: no recovery was needed",),
    ),
    "docs/cluster/README.md": Needs(before=NEWS, replaced={"--to 1,2,4": "--to 1"}),
    "docs/cluster/join-and-leave.md": Needs(before=NEWS, replaced={"[1,2,3]": "[1]"}),
    "docs/console.md": Needs(
        replaced={"9500": "{port}", "/etc/barnabas": "{folder}"},
        before='echo \'{"type": "record", "name": "Order", "fields": []}\' > order.avsc\n',
        shown=("console: http://127.0.0.1:9500",),
    ),
    "docs/extending.md": Needs(
        python="from barnabas.api.access import of_cluster\n"
        "from barnabas.api.call import Call\n"
        "from barnabas.api.contexts import MetadataContext\n"
        "from barnabas.security.acl_codes import DESCRIBE\n"
        "from barnabas.telemetry.registry import COUNTER, Metric\n"
        "from barnabas.wire import Struct\n"
    ),
    "docs/formats.md": Needs(replaced={"/var/lib/barnabas": "{stopped}"}),
    "docs/hooks.md": Needs(),
    "docs/migrating-from-kafka.md": Needs(
        replaced={
            "/etc/kafka/server.properties": KAFKA_FILE,
            "/var/lib/barnabas": "{folder}/data",
            "127.0.0.1:19092": "127.0.0.1:{port}",
            "kafka:9092": "{other}",
            "--whitelist '.*'": "--whitelist '.*' --end",
        },
    ),
    "docs/mirror.md": Needs(
        replaced={
            "10.0.0.1:9092": "{other}",
            "10.1.0.1:9092": "{third}",
            "9644": "{port} --end",
        }
    ),
    "docs/old-clients-consumer.md": Needs(
        before="printf '/\\n/jobs\\n' | barnabas produce page-views\n",
        replaced={'"zookeeper.connect": "127.0.0.1:2181"': '"bootstrap.servers": "{broker}"'},
        python="import builtins, threading\n"
        "def print(*values):\n"
        "    builtins.print(*values)\n"
        "    threading.Thread(target=connector.shutdown).start()\n",
    ),
    "docs/operations.md": Needs(
        settings={"metrics.port": "{port}"},
        before=NEWS + READERS + "barnabas topics create big old\n",
        replaced={"9404": "{port}", "data/news-0": "{damaged}/news-0"},
    ),
    "docs/quick-start.md": Needs(
        replaced={"barnabas dev": "barnabas dev --set console.port=-1"},
    ),
    "docs/scan.md": Needs(
        before="seq 2500 | barnabas produce news\n",
        replaced={'scan("news"': 'scan("news", bootstrap_servers="{broker}"'},
    ),
    "docs/sizing.md": Needs(
        replaced={"--seconds 10": "--seconds 0.5", "--rate 1000": "--rate 1000 --seconds 0.5"}
    ),
    "docs/storage.md": Needs(
        settings={"log.dirs": "{folder}/logs"},
        replaced={"/var/lib/barnabas": "{folder}/logs", "19092": "{port}"},
    ),
    "docs/style.md": Needs(
        python="from collections.abc import Sequence\nfrom barnabas.hooks import SegmentView\n"
    ),
    "docs/troubleshooting.md": Needs(
        before=NEWS + READERS, replaced={"/var/lib/barnabas": "{stopped}"}
    ),
    "docs/zookeeper.md": Needs(
        before="echo zookeeper=secret > secrets\nchmod 600 secrets\n",
        replaced={"/etc/barnabas": "{folder}"},
    ),
}


def run_python(text: str, known: dict[str, object]) -> None:
    exec(compile(text, "block", "exec"), known)  # noqa: S102 - a block of our documentation


def check_settings(shell: Shell, text: str) -> None:
    (shell.folder / "shown.properties").write_text(shell.here(text))
    shell.run("barnabas config check shown.properties")


def check_toml(text: str, known: dict[str, object]) -> None:
    """Entry points name classes of the page."""
    for group in tomllib.loads(text)["project"]["entry-points"].values():
        assert [name for name in group.values() if name.partition(":")[2] not in known] == []


def check_yaml(text: str) -> None:
    assert pytest.importorskip("yaml").safe_load(text)


def run_block(block: Block, place: str, shell: Shell, known: dict[str, object], stdin: str) -> None:
    wanted = [text for text in commands(block) if runs(place, text)]
    text = "".join(f"{text}\n" for text in wanted)
    if not text:
        return
    match block.kind:
        case "sh":
            shell.run(text, stdin)
        case "python":
            run_python(shell.here(text), known)
        case "properties":
            check_settings(shell, text)
        case "toml":
            check_toml(text, known)
        case "yaml":
            check_yaml(text)
        case _:
            pytest.fail(f"no test runs this block, and tests/cli/not_run.tsv lacks it: {text}")


@pytest.mark.parametrize("place", PAGES)
def test_the_blocks_of_a_page_run(place, tmp_path, monkeypatch, capsys):
    shown = [text for block in PAGES[place] for text in commands(block)]
    if not any(runs(place, text) for text in shown):
        return
    needs = NEEDS.get(place, Needs())
    if place == "docs/hooks.md":
        install_plugins(place, tmp_path / "site", monkeypatch)
    known: dict[str, object] = {"__name__": "shown"}
    run_python(needs.python, known)
    with stage(needs, tmp_path / "page") as shell:
        for block in PAGES[place]:
            run_block(block, place, shell, known, needs.stdin)
    printed = shell.printed + capsys.readouterr().out
    page = (ROOT / place).read_text()
    for text in needs.shown:
        assert text in page and shell.here(text) in printed


@pytest.mark.parametrize("place", PAGES)
def test_each_fence_is_that_of_a_block(place):
    """A block that is indented would not run."""
    assert (ROOT / place).read_text().count("```") == 2 * len(PAGES[place])


@pytest.mark.parametrize("place", PAGES)
def test_the_python_of_a_page_compiles(place):
    """Also what does not run."""
    for block in PAGES[place]:
        if block.kind == "python":
            compile(block.text, place, "exec")


def install_plugins(place: str, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of the page as an installed distribution, without those that are installed."""
    present = {row.name for row in entry_points(group="barnabas.plugins")}
    source = "\n".join(block.text for block in PAGES[place] if block.kind == "python")
    wanted = {name: PLUGINS[name] for name in PLUGINS.keys() - present}
    install(site, monkeypatch, "shown-plugins", source, **wanted)


def test_every_reason_is_for_something_that_a_page_shows():
    shown = [
        (place, text)
        for place, found in PAGES.items()
        for block in found
        for text in commands(block)
    ]
    rows = [row for row in NOT_RUN if row.place.startswith("docs/")]
    assert [row for row in rows if not any(row.is_about(*at) for at in shown)] == []
    assert set(NEEDS) <= set(PAGES)


@pytest.mark.parametrize("why", sorted({row.why for row in NOT_RUN}))
def test_the_test_that_runs_it_instead_is_there(why):
    if name := re.match(r"(tests/[\w/]+\.py)::(\w+)$", why):
        assert f"def {name[2]}(" in (ROOT / name[1]).read_text()
    else:
        assert not why.startswith("tests/")


def test_a_block_that_fails_is_seen(tmp_path):
    with stage(Needs(), tmp_path) as shell, pytest.raises(AssertionError, match="failed: barnabas"):
        shell.run("barnabas topics describe nowhere\nbarnabas topics list")
