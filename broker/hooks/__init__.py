"""Plugins: Python code of other authors that extends the broker.

Read specs.py (the contracts), views.py (what hooks see), then for what happens inside: loading.py
(finds and makes plugins), registry.py (chooses the plugins of a call), calls.py (threads, budgets,
failures), process.py (a plugin in a process of its own). A plugin author needs the names below and
barnabas.testing."""

from barnabas.cext.record.records import Record
from barnabas.hooks.client_specs import EventSender
from barnabas.hooks.options import Option, Options
from barnabas.hooks.services import Services
from barnabas.hooks.specs import hookimpl, hookspec
from barnabas.hooks.views import (
    ConfigChange,
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
