"""kcat of Debian 12 (librdkafka 2.0.2) with SCRAM: in its last message it sends its own part of the
nonce twice. RFC 5802 wants the nonce of the server's message, and Kafka from 4.0 on takes no other;
Kafka 3.9.2 asks only that the client's nonce ends with it."""

import shutil
import subprocess

import pytest
from compat.secure_kafka import USERS, secure_kafka
from compat.support import KAFKA, Wire
from security.login_broker import NUMBERS, PASSWORD, login_broker
from security.users import alter, upsertion

MECHANISMS = list(NUMBERS)
INVALID = "invalid credentials with SASL mechanism "

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


def is_old_librdkafka():
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    return "librdkafka 2.0." in said


def listed(address, mechanism, user, password, *more):
    """Whether kcat lists the broker, and what it printed."""
    options = [f"bootstrap.servers={address}", "security.protocol=SASL_PLAINTEXT", *more]
    options += [f"sasl.mechanism={mechanism}", f"sasl.username={user}", f"sasl.password={password}"]
    arguments = [part for option in options for part in ("-X", option)]
    done = subprocess.run(
        ["kcat", "-L", "-m", "4", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat_of_debian_is_refused_as_kafka_4_refuses_it(tmp_path, mechanism):
    """And logs in with PLAIN, which has no nonce."""
    if not is_old_librdkafka():
        pytest.skip("this kcat has another librdkafka")
    with login_broker(tmp_path) as login:
        with Wire(login.plain) as wire:
            alter(wire, upsertions=[upsertion("bob", PASSWORD, NUMBERS[mechanism])])
        is_good, said = listed(login.safe, mechanism, "bob", PASSWORD)
        assert not is_good and INVALID + mechanism in said
        assert listed(login.safe, "PLAIN", "alice", PASSWORD)[0]


@pytest.mark.java
@pytest.mark.only_long
@pytest.mark.parametrize(("version", "takes"), [(KAFKA, False), ("3.9.2", True)])
def test_kafka_still_says_so(tmp_path, version, takes):
    if not is_old_librdkafka():
        pytest.skip("this kcat has another librdkafka")
    with secure_kafka(tmp_path, version) as kafka:
        over_tls = ("security.protocol=SASL_SSL", f"ssl.ca.location={kafka.trusted}")
        for mechanism in MECHANISMS:
            is_good, said = listed(kafka.address, mechanism, *USERS[mechanism], *over_tls)
            assert is_good is takes and (INVALID + mechanism in said) is not takes, said
        assert listed(kafka.address, "PLAIN", *USERS["PLAIN"], *over_tls)[0]
