"""A binary file is refused as a settings file, with one line."""

import sys

import pytest

from barnabas.config import BrokerConfig, ConfigError


def test_a_binary_settings_file_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="a binary file") as refused:
        BrokerConfig.load(sys.executable, environ={})
    assert len(str(refused.value).splitlines()) == 1
