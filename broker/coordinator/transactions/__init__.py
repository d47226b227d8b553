"""The coordinator of transactions: transactional ids, their records and their markers.

Start with transaction.py (the states of one id), then coordinator.py.
"""
