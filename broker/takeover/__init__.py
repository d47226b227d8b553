"""Takes over log directories of Apache Kafka. docs/decisions/taking-over.md has the rules.

Begin with import_plan.py: what an import would do. copied_import.py carries the plan out.
"""
