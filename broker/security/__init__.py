"""Logins of clients: SASL PLAIN and SCRAM on SASL_PLAINTEXT listeners.

config/jaas.py reads the lines that say who may log in, plain.py and scram.py are the mechanisms,
credentials.py keeps SCRAM credentials in the metadata tree, and logins.py is the login of one
connection. docs/decisions/logins.md has the design. Next: logins.py.
"""
