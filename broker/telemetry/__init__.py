"""Metrics of the running broker: their names, their values, and the /metrics page that shows them.

`registry` defines metrics. Packages register collectors with it, and it calls the collectors when a
client reads the page. `exposition` writes the page, `endpoint` serves it. cext counts what happens
on the hot path; this package only reads those counters.
"""
