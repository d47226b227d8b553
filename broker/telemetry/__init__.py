"""Figures of the running broker: what is measured, how it is written, and the page that shows it.

`registry` says what a figure is; packages register collectors with it, which are asked when
somebody reads the page. `exposition` writes the page, `endpoint` serves it. What is counted on the
hot path is counted in cext (`counters`, `request_figures`, `histogram`) and only read here.
"""
