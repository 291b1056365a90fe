"""Faults of processes and servers, with real workers, Redis and Postgres: `python -m tests.faults`, `make faults`."""
