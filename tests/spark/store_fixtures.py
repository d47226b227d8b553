"""Real stores for tests: a local disk, HDFS and an S3 server, each as the URL of an empty
directory."""

import uuid
from dataclasses import dataclass

import pytest


@dataclass
class S3Server:
    """moto's server, in another process."""

    endpoint: str
    bucket: str = "lake"

    @property
    def environment(self):
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }


def s3_server():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        found = S3Server(f"http://{host}:{port}")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in found.environment.items():
                patch.setenv(name, value)
            import boto3

            boto3.client("s3").create_bucket(Bucket=found.bucket)
        yield found
    finally:
        server.stop()


def place_of(kind, request, monkeypatch):
    """The URL of an empty place."""
    if kind == "local":
        return str(request.getfixturevalue("tmp_path") / "store")
    name = uuid.uuid4().hex
    if kind == "hdfs":
        cluster = request.getfixturevalue("hdfs")
        monkeypatch.setenv("HADOOP_CONF_DIR", cluster.conf_dir())
        return f"{cluster.hdfs}/{name}"
    server = request.getfixturevalue("s3")
    for variable, value in server.environment.items():
        monkeypatch.setenv(variable, value)
    return f"s3://{server.bucket}/{name}"
