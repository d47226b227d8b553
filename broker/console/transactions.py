"""The pages of transactions, of all coordinators."""

from __future__ import annotations

from barnabas.client.transactions import describe_transactions, list_transactions
from barnabas.console.topics import sliced
from barnabas.console.visit import Page, Visit


def all_transactions(visit: Visit) -> Page:
    """The transactional ids that the user may describe; `find`: a part of the id."""
    find = visit.text("find")
    rows = [row for row in list_transactions(visit.client) if find in row.transactionalId]
    shown, pages = sliced(visit, rows)
    return Page("transactions.html", {"transactions": shown, "pages": pages, "find": find})


def one_transaction(visit: Visit) -> Page:
    """A transactional id: `id`."""
    (found,) = describe_transactions(visit.client, [visit.needed("id")])
    return Page("transaction.html", {"row": found})
