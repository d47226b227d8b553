"""The console: web pages of one broker, served by its process (docs/console.md).

    gateway.py    how the console talks to brokers: as a client, with the login of its user
    sessions.py   who is logged in; limits of logins
    history.py    rates and lag of the last minutes
    visit.py      one request of a page: its user, its client, its parameters
    site.py       paths, cookies, CSRF tokens, headers, errors
    opening.py    settings; opens and closes the port

Each other module has one page, or the pages of one noun. A page asks brokers through
barnabas.client, over a listener of this broker, so that access rules, quotas and the audit log
apply to its user as to any client; the console has no rules of its own. What the protocol does not
have (rates, plugins, lag over time) is shown to users who may describe the cluster, or the topic.

The broker imports this package only when `console.port` is set. Next: opening.py.
"""
