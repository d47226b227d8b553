"""Plugins: Python code of other authors that extends the broker.

Read specs.py (the contracts) and views.py (arguments and return values of hooks). The other modules
are internal: loading.py (finds and creates plugins), registry.py (chooses the plugins of a call),
calls.py (threads, budgets, failures), process.py (a plugin in its own process). A plugin author
needs the names below and barnabas.testing."""

from barnabas.cext.record.records import Record
from barnabas.hooks.client_specs import EventSender
from barnabas.hooks.options import Option, Options
from barnabas.hooks.services import Services
from barnabas.hooks.specs import hookimpl, hookspec
from barnabas.hooks.views import (
    ConfigChange,
    ConnectionView,
    DirectoryView,
    DirtyLog,
    GroupMemberView,
    GroupTopicView,
    GroupView,
    KeyedMessage,
    LogView,
    MirroredMessage,
    NewTopicView,
    RecordBatch,
    Reject,
    Replace,
    SegmentView,
    UnflushedLog,
)

__all__ = [
    "ConfigChange",
    "ConnectionView",
    "DirectoryView",
    "DirtyLog",
    "EventSender",
    "GroupMemberView",
    "GroupTopicView",
    "GroupView",
    "KeyedMessage",
    "LogView",
    "MirroredMessage",
    "NewTopicView",
    "Option",
    "Options",
    "Record",
    "RecordBatch",
    "Reject",
    "Replace",
    "SegmentView",
    "Services",
    "UnflushedLog",
    "hookimpl",
    "hookspec",
]
