"""One broker with users and rules, and one without, for the tests of a file."""

import pytest
from console.console_broker import open_broker, ruled_broker


@pytest.fixture(scope="module")
def ruled():
    with ruled_broker() as watched:
        yield watched


@pytest.fixture(scope="module")
def opened():
    with open_broker() as watched:
        yield watched
