"""Metrics of the running broker: their names, their values, and the /metrics page that shows them.

`registry` defines metrics; packages register collectors with it, which it calls when a client
reads the page. `exposition` writes the page, `endpoint` serves it. What is counted on the
hot path is counted in cext (`counters`, `request_figures`, `histogram`) and only read here.
"""
