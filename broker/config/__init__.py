"""The table of all settings, and the configuration of a broker.

Read settings.py (the table), values.py (one value), properties.py, environment.py and providers.py
(the sources of values), listeners.py and protection.py (checks that refuse a start),
broker_config.py (the static configuration), layers.py (which value is in force), dynamic_config.py,
topic_config.py, group_config.py and client_metrics.py; jaas.py reads JAAS lines.
"""

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic_config import DynamicConfig
from barnabas.config.group_config import GroupConfig, check_group
from barnabas.config.settings import ConfigError
from barnabas.config.topic_config import TopicConfig, check_topic

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "DynamicConfig",
    "GroupConfig",
    "TopicConfig",
    "check_group",
    "check_topic",
]
