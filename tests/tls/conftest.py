"""Skips the tests of TLS in a build without OpenSSL, except test_build.py."""

from barnabas.config.tls import is_built_in

collect_ignore_glob = [] if is_built_in() else ["test_[!b]*.py"]
