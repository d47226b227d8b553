class NativeHandler:
    """Carries a native handler from the module that makes it to the Reactor; made by that module only."""

    apis: tuple[tuple[int, int, int], ...]  # (API key, first version, last version) it answers

class PermissionTable:
    """Carries the permissions from the module that makes them to Reactor.set_permissions."""
