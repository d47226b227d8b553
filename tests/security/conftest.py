import pytest
from compat.support import Wire
from security.login_broker import HASHES, NUMBERS, PASSWORD, login_broker
from security.users import alter, upsertion


@pytest.fixture(scope="module")
def login(tmp_path_factory):
    """A broker where alice logs in with PLAIN, and bob with either SCRAM mechanism."""
    with login_broker(tmp_path_factory.mktemp("login")) as made, Wire(made.plain) as wire:
        for mechanism in HASHES:
            row = upsertion("bob", PASSWORD, NUMBERS[mechanism])
            assert alter(wire, upsertions=[row]) == {"bob": (0, None)}
        yield made
