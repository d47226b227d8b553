class NativeHandler:
    """Carries a native handler to the Reactor from the module that makes it."""

    apis: tuple[tuple[int, int, int], ...]  # (API key, first version, last version) it answers

class SensorCarrier:
    """Carries a sensor from the module that makes it to those that count with it."""

class PermissionTable:
    """Carries the permissions to Reactor.set_permissions from the module that makes them."""
