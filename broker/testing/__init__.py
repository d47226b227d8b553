"""The broker inside a test process, with faults on demand, a clock that the test moves, and
assertions on records.

broker.py defines the class that `from barnabas import Broker` gives; next: faults.py.
"""
