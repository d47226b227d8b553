"""Spark's reader and writer at a broker that `barnabas security init` has protected: SASL_SSL; and
with a token of an identity provider."""

import pytest
from compat.support import create_topic
from security.json_tokens import MODULE as OAUTH_MODULE
from security.json_tokens import KeyServer, oauth_settings, signed
from security.login_broker import login_broker
from security.test_security_command import init, properties, started

from barnabas.cli import main
from barnabas.cli.security import CLIENT
from barnabas.config.tls import is_built_in

pytestmark = [
    pytest.mark.spark_session,
    pytest.mark.skipif(not is_built_in(), reason="this build has no TLS"),
]


@pytest.fixture(scope="module")
def protected(tmp_path_factory):
    """The options of Spark's formats for the administrator."""
    folder = tmp_path_factory.mktemp("protected")
    assert init(folder) == 0
    file = folder / "security" / CLIENT
    with started(folder) as broker:
        at = ("-b", broker.bootstrap_servers, "--command-config", str(file))
        assert main(["topics", "create", "t", "--partitions", "2", *at]) == 0
        given = properties(file) | {"bootstrap.servers": broker.bootstrap_servers}
        yield {f"kafka.{name}": value for name, value in given.items()}


def rows_of(spark, options):
    reader = spark.read.format("barnabas").options(**options).option("subscribe", "t")
    return sorted(bytes(row.value) for row in reader.load().select("value").collect())


def test_spark_writes_and_reads_over_tls_with_a_login(spark, protected):
    frame = spark.createDataFrame([(f"row {i}",) for i in range(40)], "value string")
    writer = frame.write.format("barnabas").mode("append").options(**protected)
    writer.option("topic", "t").save()
    assert rows_of(spark, protected) == sorted(f"row {i}".encode() for i in range(40))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("password", "SaslAuthenticationFailed|Authentication failed"),
        ("protocol", "cannot|lost|closed|connect"),
        ("certificate", "CERTIFICATE_VERIFY_FAILED|certificate verify failed"),
    ],
)
def test_spark_is_refused(spark, protected, change, said):
    wrong = dict(protected)
    if change == "password":
        jaas = wrong["kafka.sasl.jaas.config"]
        wrong["kafka.sasl.jaas.config"] = jaas.replace('username="', 'username="not-')
    elif change == "protocol":
        wrong["kafka.security.protocol"] = "SASL_PLAINTEXT"
    else:
        wrong = {name: v for name, v in wrong.items() if "truststore" not in name}
    with pytest.raises(Exception, match=said):
        rows_of(spark, wrong)


def test_spark_writes_and_reads_with_a_token_of_an_endpoint(spark, tmp_path):
    """The driver asks for the token; tasks use it, and need no endpoint."""
    with (
        KeyServer().running(tmp_path) as provider,
        login_broker(tmp_path, **oauth_settings(tmp_path)) as login,
    ):
        provider.answer = (200, {}, b'{"access_token":"%s"}' % signed().encode())
        create_topic(login.plain, "t")
        line = (
            f'{OAUTH_MODULE} required clientId="spark" clientSecret="not for the log"'
            f' ssl.truststore.type="PEM" ssl.truststore.location="{tmp_path / "ca.pem"}";'
        )
        options = {
            "kafka.bootstrap.servers": login.safe,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": provider.url,
            "kafka.sasl.jaas.config": line,
        }
        frame = spark.createDataFrame([(f"row {i}",) for i in range(20)], "value string")
        writer = frame.write.format("barnabas").mode("append").options(**options)
        writer.option("topic", "t").save()
        assert rows_of(spark, options) == sorted(f"row {i}".encode() for i in range(20))
        assert 0 < len(provider.posted) <= 6
        provider.answer = (401, {}, b"{}")
        with pytest.raises(Exception, match="HTTP 401"):
            rows_of(spark, options)
