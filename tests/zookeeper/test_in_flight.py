"""zookeeper.max.in.flight.requests"""

import threading

import pytest

from barnabas.metadata.tree import CreateNode


@pytest.mark.parametrize("most", [1, 3])
def test_requests_under_way_are_bounded(brokers, zookeeper_server, most):
    broker = brokers.start(
        zookeeper_server.connect(zookeeper_server.new_chroot()),
        **{"zookeeper.max.in.flight.requests": str(most)},
    )
    tree = broker.node.opened.tree
    tree.create("/many")
    tree.multi([CreateNode(f"/many/n{n}", b"x") for n in range(200)])
    client, seen, lock = tree._client, [], threading.Lock()
    send, under_way = client._call, set()

    def counted(request, asked):
        with lock:
            under_way.add(asked)
            seen.append(sum(not each.ready() for each in under_way))
        return send(request, asked)

    client._call = counted
    threads = [threading.Thread(target=tree.subtree, args=("/many",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) >= 4 * 200 and max(seen) == most
