"""Without log.dirs the data goes to a directory that survives a reboot; the start logs it."""

import os

import pytest

from barnabas.config import BrokerConfig, broker_config
from barnabas.config.data_directory import cache_directory, default_data_directory


@pytest.mark.parametrize(
    ("environ", "user_id", "place"),
    [
        ({"HOME": "/home/ann"}, 0, "/var/lib/barnabas"),
        ({"XDG_DATA_HOME": "/data/ann"}, 1000, "/data/ann/barnabas"),
        ({"XDG_DATA_HOME": "relative"}, 1000, "/home/ann/.local/share/barnabas"),
        ({}, 1000, "/home/ann/.local/share/barnabas"),
    ],
)
def test_default_place_survives_a_reboot(monkeypatch, environ, user_id, place):
    monkeypatch.setenv("HOME", "/home/ann")
    assert default_data_directory(environ, user_id) == place


@pytest.mark.parametrize(
    ("environ", "user_id", "place"),
    [
        ({"CACHE_DIRECTORY": "/var/cache/kafka:/other"}, 1000, "/var/cache/kafka"),
        ({"XDG_CACHE_HOME": "/fast/ann"}, 0, "/var/cache/barnabas"),
        ({"XDG_CACHE_HOME": "/fast/ann"}, 1000, "/fast/ann/barnabas"),
        ({"CACHE_DIRECTORY": "here", "XDG_CACHE_HOME": "here"}, 1000, "/home/ann/.cache/barnabas"),
    ],
)
def test_place_of_what_can_be_made_again(monkeypatch, environ, user_id, place):
    monkeypatch.setenv("HOME", "/home/ann")
    assert cache_directory(environ, user_id) == place


def test_default_is_in_force_described_and_said(monkeypatch, tmp_path):
    monkeypatch.setattr(broker_config, "FORMER", str(tmp_path))
    place = default_data_directory(os.environ, os.geteuid())
    config = BrokerConfig({})
    assert config.log_dirs == (place,) and not place.startswith("/tmp")
    assert f"log.dirs is not set: data goes to {place}" in config.notices
    assert not config.warnings
    (tmp_path / "meta.properties").touch()
    (warning,) = BrokerConfig({}).warnings
    assert f"--set log.dirs={tmp_path}" in warning and place in warning


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_tmp_is_used_when_it_is_asked_for(tmp_path, name):
    path = tmp_path / "server.properties"
    path.write_text(f"{name}=/tmp/kafka-logs\n")
    config = BrokerConfig.load(path, environ={})
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert not any("log.dirs" in line for line in (*config.notices, *config.warnings))
