"""Answers each order with a parcel, with FastStream.

barnabas dev                  in one terminal
python shipping.py            in another; Ctrl-C ends it
barnabas consume parcels
"""

import asyncio
import sys

from faststream import FastStream
from faststream.kafka import KafkaBroker
from pydantic import BaseModel, PositiveInt

ITEMS_OF_A_PARCEL = 3


class Order(BaseModel):
    order: int
    customer: str
    items: PositiveInt


class Parcel(BaseModel):
    order: int
    customer: str
    parcels: int


def shipping(servers: str) -> FastStream:
    """Returns the application: `await app.run()`."""
    broker = KafkaBroker(servers)

    @broker.subscriber("orders", group_id="shipping", auto_offset_reset="earliest")
    @broker.publisher("parcels")
    async def ship(order: Order) -> Parcel:
        count = -(-order.items // ITEMS_OF_A_PARCEL)
        return Parcel(order=order.order, customer=order.customer, parcels=count)

    return FastStream(broker)


if __name__ == "__main__":
    asyncio.run(shipping(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092").run())
