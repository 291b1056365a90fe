"""Real servers for tests: shared embedded Postgres and Redis, a fresh database per test, worker processes."""
