"""The page of client quotas."""

from __future__ import annotations

from barnabas.client.quotas import describe_quotas, entity_text
from barnabas.console.topics import sliced
from barnabas.console.visit import Page, Visit


def all_quotas(visit: Visit) -> Page:
    """The quotas of all users, client ids and addresses."""
    rows = [(entity_text(row.names), row.values) for row in describe_quotas(visit.client, {})]
    shown, pages = sliced(visit, rows)
    return Page("quotas.html", {"quotas": shown, "pages": pages})
