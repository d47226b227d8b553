"""Metrics of the running broker: their names, their values, and the /metrics page that shows them.

`registry` defines metrics; packages register collectors with it, which it calls when a client
reads the page. `exposition` writes the page, `endpoint` serves it. cext counts what happens on the
hot path; this package only reads those counters.
"""
