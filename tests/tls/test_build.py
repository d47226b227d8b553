"""A build without OpenSSL's headers works, reports the missing TLS, and refuses TLS listeners."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas.config.broker_config
import barnabas.config.tls
import barnabas.tls.listener_tls
from barnabas import Broker
from barnabas.config import BrokerConfig
from barnabas.stages.configured import CannotStart

ROOT = Path(__file__).resolve().parents[2]
LIST = (
    "import runpy; made = runpy.run_path('setup.py', run_name='setup')['extensions']();"
    "print(sorted(e.name for e in made if 'network' in e.name and 'tls' in e.name))"
)


def extensions_of(**environment):
    """The extensions that setup.py would compile, and its output."""
    command = [sys.executable, "-c", LIST]
    pytest.importorskip("Cython")
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_build_without_headers_says_so_and_leaves_tls_out(tmp_path):
    """Once with the switch, and once because the compiler finds no headers."""
    no_headers = tmp_path / "cc"
    no_headers.write_text('#!/bin/sh\ncase "$*" in *probe.c*) exit 1;; esac\nexec gcc "$@"\n')
    no_headers.chmod(0o755)
    for environment in ({"BARNABAS_WITHOUT_TLS": "1"}, {"CC": str(no_headers)}):
        lines = extensions_of(**environment)
        assert lines == [
            "barnabas: built without TLS: no headers of OpenSSL 1.1.1 or later (libssl-dev)",
            "[]",
        ]


@pytest.mark.skipif(not barnabas.config.tls.is_built_in(), reason="no OpenSSL here")
def test_a_build_with_headers_says_nothing():
    assert extensions_of() == ["['barnabas.cext.network.tls']"]


@pytest.fixture
def without_tls(monkeypatch):
    for module in (barnabas.config.broker_config, barnabas.tls.listener_tls):
        monkeypatch.setattr(module, "is_built_in", lambda: False)


def test_a_start_without_tls_says_so(without_tls):
    assert [n for n in BrokerConfig({}).notices if "this build has no TLS" in n]


def test_a_tls_listener_is_refused_without_tls(without_tls, tmp_path):
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(tmp_path / "broker.p12"),
    }
    with pytest.raises(CannotStart, match="listeners=SSL://127.0.0.1:0: this build has no TLS"):
        Broker(settings).start()


def test_a_broker_without_tls_listeners_does_not_load_openssl():
    script = (
        "from barnabas import Broker\n"
        "with Broker() as broker: pass\n"
        "print([line for line in open('/proc/self/maps') if 'network/tls' in line])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
