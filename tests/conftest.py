"""What holds for all tests: the broker under test, and that CI skips nothing unseen."""

import faulthandler
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from zookeeper_server import zookeeper_server  # noqa: F401  (a fixture for every test)

END_S = 120
ALLOWED = Path(__file__).with_name("skips.txt")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        default=os.environ.get("BARNABAS_COMPAT_BROKER", "barnabas"),
        help="what tests/compat talks to: barnabas, or kafka[:VERSION[:zookeeper]]",
    )


def allowed_skips() -> Iterator[str]:
    """The starts of test names that tests/skips.txt lets be skipped in CI."""
    for line in ALLOWED.read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split("\t")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in unlisted(terminalreporter):
        terminalreporter.write_line(f"skipped, and not in tests/skips.txt: {report.nodeid}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """CI installs all that tests need, so a skip there means a test that nobody runs."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and unlisted(reporter) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """A thread that a failed test left running would keep this process from ending; it is named
    then, by its stack."""
    faulthandler.dump_traceback_later(END_S, exit=True, file=sys.__stderr__)


def unlisted(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    if os.environ.get("CI", "").lower() not in ("1", "true"):
        return []
    allowed = tuple(allowed_skips())
    skipped = reporter.stats.get("skipped", [])
    return [report for report in skipped if not report.nodeid.startswith(allowed or ("\0",))]
