"""A build without OpenSSL has no TLS to test, but for what it says about that (test_build.py)."""

from barnabas.config.tls import is_built_in

collect_ignore_glob = [] if is_built_in() else ["test_[!b]*.py"]
