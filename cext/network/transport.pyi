class Transport:
    """How the bytes of a listener's connections pass their sockets (Reactor.listen)."""
