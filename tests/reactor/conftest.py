"""Fixtures of this folder."""

import pytest
from ext.compiled import compiled


@pytest.fixture(scope="session")
def trial_handler():
    """A native handler that answers, parks, closes, or passes the request to Python, by the API
    key."""
    return compiled("trial_handler").TrialHandler
