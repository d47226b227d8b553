"""The machine: system calls, epochs, locks, atomics, maps, counters. Nothing here knows Kafka."""
