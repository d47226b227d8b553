"""A Kerberos realm for tests: a KDC of Debian (krb5-kdc) on loopback, in a folder of its own."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from durability.broker_process import free_port

REALM = "TEST.BARNABAS"
PROGRAMS = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")


def missing() -> str | None:
    """Why there can be no realm here, or None."""
    absent = [name for name in PROGRAMS if _program(name) is None]
    if absent:
        return (
            f"{', '.join(absent)} not there: apt-get install krb5-kdc krb5-admin-server krb5-user"
        )
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError):
        return "no package gssapi: apt-get install libkrb5-dev; pip install 'barnabas[kerberos]'"
    return None


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Realm:
    """`environ`: what programs need to be in the realm."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\nrdns = false\n"
            "dns_canonicalize_hostname = false\nudp_preference_limit = 1\n"
            f"[realms]\n{REALM} = {{\n kdc = 127.0.0.1:{self.port}\n}}\n"
            f"[domain_realm]\nlocalhost = {REALM}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{self.port}\n"
            f"kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n{REALM} = {{\n database_name = {folder}/principal\n"
            f" key_stash_file = {folder}/stash\n acl_file = {folder}/acl\n}}\n"
        )
        self.environ = {
            "KRB5_CONFIG": str(folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5RCACHEDIR": str(folder),
            "KRB5CCNAME": f"FILE:{folder}/cache",
        }

    def run(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(_program(name)), *arguments],
            env=os.environ | self.environ,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, (name, arguments, done.stderr)
        return done.stdout

    def keytab(self, principal: str) -> Path:
        """Adds a principal with a random key."""
        path = self.folder / (principal.replace("/", "_") + ".keytab")
        self.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        path.chmod(0o600)
        return path

    def log_in(self, principal: str) -> None:
        """Puts the ticket of a principal that has a keytab into the cache of the realm."""
        path = self.folder / (principal.replace("/", "_") + ".keytab")
        self.run("kinit", "-k", "-t", str(path), principal)

    @contextlib.contextmanager
    def running(self):
        self.run("kdb5_util", "create", "-s", "-P", "of the realm", "-r", REALM)
        process = subprocess.Popen(
            [str(_program("krb5kdc")), "-n"],
            env=os.environ | self.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 10
            while True:
                try:
                    socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline and process.poll() is None
                    time.sleep(0.02)
            yield self
        finally:
            process.terminate()
            process.wait(10)
