"""Transactions: the coordinator of transactional ids, its journal's records, and what it orders.

Start with transaction.py (the states of one id), then coordinator.py.
"""
