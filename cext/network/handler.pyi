class LaneHandle:
    """Carries a lane from the module that makes it to the Reactor; made by that module only."""
