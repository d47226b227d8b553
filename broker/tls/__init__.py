"""TLS of the listeners: keys, certificates and rules for cext/network/tls.

stores.py reads keystores and truststores (jks.py those of Java), and listener_tls.py makes what a
listener serves with, and makes it anew when a setting or a file changes. https.py reads
what identity providers publish. docs/decisions/tls.md has
the design. Next: listener_tls.py.
"""
