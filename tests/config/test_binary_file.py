"""A file that is no text is refused as a settings file, in one line."""

import sys

import pytest

from barnabas.config import BrokerConfig, ConfigError


def test_a_binary_settings_file_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="a binary file") as refused:
        BrokerConfig.load(sys.executable, environ={})
    assert len(str(refused.value).splitlines()) == 1
