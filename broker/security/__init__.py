"""Authentication and authorization: the SASL mechanisms, the principals of certificates, access
rules.

config/jaas.py reads JAAS lines; plain.py, scram.py, oauthbearer.py and kerberos.py are the
mechanisms;
credentials.py keeps SCRAM credentials in the metadata tree; logins.py runs the login of one
connection; authorizer.py decides on access. docs/decisions/logins.md has the design. Next:
logins.py.
"""
