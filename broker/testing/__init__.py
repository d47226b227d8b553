"""The broker inside a test process: faults on demand, time that the test moves, record assertions.

broker.py is the handle that `from barnabas import Broker` gives; next: faults.py.
"""
