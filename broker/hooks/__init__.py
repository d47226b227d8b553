"""Where a person's Python extends the broker: hook specifications and the registry of plugins.

Read specs.py (the contracts), then registry.py (who implements them, and what happens when one
fails). A plugin author needs `from barnabas.hooks import hookimpl` and specs.py only.
"""

from barnabas.hooks.specs import LogView, SegmentView, hookimpl, hookspec

__all__ = ["LogView", "SegmentView", "hookimpl", "hookspec"]
