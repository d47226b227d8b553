"""Streams groups (KIP-1071): the broker assigns the tasks of a Kafka Streams application.

A member sends its topology when it joins. The group has the topology's internal topics created
(topology.py, topic_configuration.py), distributes the tasks (task_assignor.py), and each member
makes steps towards its target (tasks.py, streams_member.py). streams_group.py is the state of a
group, streams_records.py stores it, streams_heartbeats.py has the requests, endpoints.py what
applications ask for interactive queries, streams_settings.py the settings. The package is loaded
with the first such group or its first record.
"""
