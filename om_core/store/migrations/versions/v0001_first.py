"""The first schema: tables, roles with row-level security, hot functions."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[1] / "sql"


def upgrade() -> None:
    """Create everything."""
    driver = op.get_bind().connection.cursor()
    for name in ("tables_v1.sql", "roles_v1.sql", "hot_v1.sql", "claim_v1.sql"):
        driver.execute((SQL / name).read_text(encoding="utf-8"))


def downgrade() -> None:
    """Not possible: it would delete every memory."""
    msg = "there is no version before 0001; drop the database instead"
    raise RuntimeError(msg)
