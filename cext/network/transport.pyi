class Transport:
    """The calls by which a listener's connections use their sockets, for Reactor.listen: TLS."""
