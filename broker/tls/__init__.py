"""TLS of the listeners: keys, certificates and rules for cext/network/tls.

stores.py reads keystores and truststores (jks.py those of Java), and listener_tls.py makes the TLS
context of a listener, and makes it again when a setting or a file changes. https.py reads keys and
tokens of identity providers. docs/decisions/tls.md has the design. Next: listener_tls.py.
"""
