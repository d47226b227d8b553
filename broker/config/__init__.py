"""Every setting once, and the configuration made of them.

Read settings.py (the table), values.py (one value), properties.py, environment.py and providers.py
(where values come from), listeners.py and protection.py (what is refused), broker_config.py (all
of it together), layers.py (which value counts), dynamic_config.py, topic_config.py,
group_config.py and client_metrics.py.
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
