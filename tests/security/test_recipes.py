"""docs/security/recipes.md: the files and commands of each recipe, as they stand on the page.

What a test cannot have is replaced: the port, the identity provider by files, the realm's name."""

import os
import re
import shlex
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compat.support import KAFKA, QUICK_HEAP, rival
from durability.broker_process import free_port
from security import key_distribution_center
from security.key_distribution_center import REALM, Realm

from barnabas.config.tls import is_built_in

pytestmark = [
    pytest.mark.skipif(not is_built_in(), reason="this build has no TLS"),
    pytest.mark.takes(seconds=30),
]
PAGE = Path(__file__).parents[2] / "docs" / "security" / "recipes.md"
BLOCK = re.compile(r"^```(sh|properties)(?: (\S+))?\n(.*?)^```", re.M | re.S)
START_S = 30


def sections():
    """The blocks of each recipe: (kind, file, text), in their order."""
    parts = re.split(r"^## (.+)\n", PAGE.read_text(), flags=re.M)[1:]
    return {title: BLOCK.findall(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}


RECIPES = sections()


class Kitchen:
    """Runs the blocks of a recipe in a folder. `replaced`: what stands on the page, and in its
    place here; `environ`: more variables of the commands."""

    def __init__(self, folder, replaced=(), environ=()):
        self.folder = folder
        self.port = free_port()
        self._replaced = {"9093": str(self.port), **dict(replaced)}
        path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
        self._environ = os.environ | {"PATH": path, "KAFKA_METRICS_PORT": "-1"} | dict(environ)
        self._broker = None

    def __enter__(self):
        return self

    def __exit__(self, *_raised):
        if self._broker is not None:
            self._broker.terminate()
            self._broker.wait(30)

    def cook(self, title):
        """Returns what the commands printed."""
        printed = ""
        for kind, name, text in RECIPES[title]:
            for old, new in self._replaced.items():
                text = text.replace(old, new)
            if kind == "properties":
                (self.folder / name).write_text(text)
                (self.folder / name).chmod(0o600)
            elif text.startswith("barnabas start "):
                self._start(text)
            else:
                printed += self.run(text)
        return printed

    def run(self, text, is_good=True):
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", text],
            cwd=self.folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert (done.returncode == 0) == is_good, (text, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def _start(self, text):
        log = self.folder / "broker.log"
        with open(log, "w") as out:
            self._broker = subprocess.Popen(
                shlex.split(text), cwd=self.folder, env=self._environ, stdout=out, stderr=out
            )
        end = time.monotonic() + START_S
        while "ready:" not in log.read_text():
            assert time.monotonic() < end and self._broker.poll() is None, log.read_text()
            time.sleep(0.05)

    def tool_of_kafka(self, *flags):
        """Makes kafka-topics.sh, which Kafka's jars stand behind."""
        if reason := rival.missing(KAFKA):
            pytest.skip(reason)
        command = rival.tool(KAFKA, "topics", self.folder / "tool.log", heap=QUICK_HEAP)
        command[1:1] = flags
        script = self.folder / "kafka-topics.sh"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(stat.S_IRWXU)

    def at(self, file=None):
        words = f"-b localhost:{self.port} --timeout 3"
        return f"{words} --command-config {file}" if file else words


def test_each_recipe_has_a_test():
    assert set(RECIPES) == {"Certificates", "TLS only", "mTLS", "SCRAM", "OAuth", "Kerberos"}
    assert all(RECIPES.values())


def test_tls_only(tmp_path):
    with Kitchen(tmp_path) as kitchen:
        kitchen.cook("Certificates")
        assert "news" in kitchen.cook("TLS only")
        kitchen.run(f"barnabas topics list {kitchen.at()}", is_good=False)


def test_mtls(tmp_path):
    with Kitchen(tmp_path) as kitchen:
        kitchen.cook("Certificates")
        assert "User:alice" in kitchen.cook("mTLS")
        text = (tmp_path / "client.properties").read_text()
        (tmp_path / "none.properties").write_text(re.sub("ssl.keystore.*\n", "", text))
        kitchen.run(f"barnabas topics list {kitchen.at('none.properties')}", is_good=False)


def test_scram(tmp_path):
    with Kitchen(tmp_path) as kitchen:
        kitchen.cook("SCRAM")
        admin, alice = kitchen.at("security/client.properties"), kitchen.at("alice.properties")
        read = "barnabas consume news --from-beginning --end"
        assert "hello" in kitchen.run(f"{read} {admin}")
        kitchen.run(f"{read} {alice}", is_good=False)  # she may write
        kitchen.run("sed -i 's/a long password/a short one/' alice.properties")
        refused = kitchen.run(f"echo x | barnabas produce news {alice}", is_good=False)
        assert "a short one" not in refused and "a long password" not in refused


@pytest.mark.java
def test_oauth(tmp_path):
    pytest.importorskip("jwt")
    from security.json_tokens import claims, key_set, signed

    keys, token = tmp_path / "keys.json", tmp_path / "token"
    keys.write_bytes(key_set("r"))
    token.write_text(signed())
    given = {
        "https://login.example.com/keys": keys.as_uri(),
        "https://login.example.com/token": token.as_uri(),
        "https://login.example\n": f"{claims()['iss']}\n",
        "audience=kafka\n": f"audience={claims()['aud']}\n",
    }
    with Kitchen(tmp_path, given) as kitchen:
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        kitchen.tool_of_kafka(f"{allowed}.urls={token.as_uri()}", f"{allowed}.files={token}")
        kitchen.cook("Certificates")
        kitchen.cook("OAuth")
        token.write_text(signed(iss="https://other.example"))
        quick = "\nrequest.timeout.ms=3000\ndefault.api.timeout.ms=5000\n"
        with open(tmp_path / "client.properties", "a") as file:
            file.write(quick)
        kitchen.run(RECIPES["OAuth"][-1][2].replace("9093", str(kitchen.port)), is_good=False)


@pytest.mark.java
@pytest.mark.skipif(
    key_distribution_center.missing() is not None, reason=str(key_distribution_center.missing())
)
def test_kerberos(tmp_path):
    realm = Realm(tmp_path)
    with realm.running(), Kitchen(tmp_path, {"EXAMPLE.COM": REALM}, realm.environ) as kitchen:
        kitchen.tool_of_kafka(f"-Djava.security.krb5.conf={tmp_path / 'krb5.conf'}")
        kitchen.cook("Certificates")
        kitchen.cook("Kerberos")
        kitchen.run("sed -i 's/alice/bob/g' client.properties")
        quick = "\nrequest.timeout.ms=3000\ndefault.api.timeout.ms=5000\n"
        with open(tmp_path / "client.properties", "a") as file:
            file.write(quick)
        kitchen.run(RECIPES["Kerberos"][-1][2].replace("9093", str(kitchen.port)), is_good=False)
