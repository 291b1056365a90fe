"""Interleaving fuzz: seeded schedules of everything that may happen to a thread, over a real Postgres."""
