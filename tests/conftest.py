"""Rules for all tests: the broker under test, short and long form, order of files, skipped tests.

`--long` selects the long form of random, exhaustive and killing tests (tests/long_form.py).
"""

import faulthandler
import gc
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from zookeeper_server import zookeeper_server  # noqa: F401  (a fixture for every test)

END_S = 120
ALLOWED = Path(__file__).with_name("skips.txt")
SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text().splitlines())
# A test that uses one of these fixtures has the mark java.
ZOOKEEPERS = {"zookeeper_server", "own_zookeeper", "shared_zookeeper", "own_server"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        default=os.environ.get("BARNABAS_COMPAT_BROKER", "barnabas"),
        help="what tests/compat talks to: barnabas, or kafka[:VERSION[:zookeeper]]",
    )
    parser.addoption(
        "--long",
        action="store_true",
        help="run the long form of random, exhaustive and killing tests (make long)",
    )
    parser.addoption(
        "--over",
        choices=("plaintext", "sasl_ssl"),
        default=os.environ.get("BARNABAS_OVER", "plaintext"),
        help="how clients and brokers talk in tests/cluster/faults.py (cluster/logins.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Modules read the option at import, also in the worker processes of pytest-xdist. Examples of
    hypothesis are the same in each run of the short form, and new ones in the long form."""
    if config.getoption("--long"):
        os.environ["BARNABAS_LONG"] = "1"
    if config.getoption("--over") != "plaintext":
        os.environ["BARNABAS_OVER"] = config.getoption("--over")
    # How fast examples are made and run depends on what else the machine does.
    slow = [hypothesis.HealthCheck.too_slow]
    common: dict[str, Any] = {"suppress_health_check": slow, "deadline": None}
    hypothesis.settings.register_profile("long", **common)
    hypothesis.settings.register_profile("short", derandomize=True, database=None, **common)
    is_short = os.environ.get("BARNABAS_LONG", "") in ("", "0")
    hypothesis.settings.load_profile("short" if is_short else "long")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The short form has no test with the mark `only_long`, and of one with the mark `one_of` only
    one of the cases whose ids differ in these parts. Tests of slow.txt get the mark `slow`, those
    that use ZooKeeper the mark `java`. The files that take longest come first (mark `takes`),
    so that the workers of pytest-xdist end together: each worker takes the next file in this order.
    """
    from long_form import LONG  # after the option --long was read

    left_out = [] if LONG else [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        without = set(left_out)
        items[:] = [item for item in items if item not in without]
    for item in items:
        if ZOOKEEPERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.java)
        if {item.nodeid, item.nodeid.partition("[")[0]} & SLOW:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: -seconds_of(item))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Excludes what exists by now, mostly collected tests and imported modules, from garbage
    collection: it stays until the end, and each gc.collect() of a test took 0.3 s to visit it."""
    gc.collect()
    gc.freeze()


def is_left_out(item: pytest.Item) -> bool:
    """Whether the short form leaves out the test. Of cases whose ids differ in one part, which is
    one of the mark `one_of(*parts)`, it has one; which one depends on the name and the other parts,
    so that a file with many cases has about as many with each part."""
    if item.get_closest_marker("only_long"):
        return True
    mark, case = item.get_closest_marker("one_of"), getattr(item, "callspec", None)
    if mark is None or case is None:
        return False
    parts = case.id.split("-")
    found = [part for part in mark.args if part in parts]
    if not found:
        return False
    parts.remove(found[0])
    name = f"{item.originalname} {parts}"
    return found[0] != mark.args[zlib.crc32(name.encode()) % len(mark.args)]


def seconds_of(item: pytest.Item) -> float:
    mark = item.get_closest_marker("takes")
    return mark.kwargs["seconds"] if mark else 0


def allowed_skips() -> Iterator[str]:
    """Prefixes of the names of tests that CI may skip (tests/skips.txt)."""
    for line in ALLOWED.read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split("\t")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in unlisted(terminalreporter):
        terminalreporter.write_line(f"skipped, and not in tests/skips.txt: {report.nodeid}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """CI installs all that tests need, so a test that CI skips would never run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and unlisted(reporter) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """A thread that a failed test left running would prevent the exit of this process: print its
    stack. A worker of pytest-xdist waits for the others instead, and ends with them."""
    if hasattr(config, "workerinput"):
        return
    faulthandler.dump_traceback_later(END_S, exit=True, file=sys.__stderr__)


def unlisted(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    if os.environ.get("CI", "").lower() not in ("1", "true"):
        return []
    allowed = tuple(allowed_skips())
    skipped = reporter.stats.get("skipped", [])
    return [report for report in skipped if not report.nodeid.startswith(allowed or ("\0",))]
