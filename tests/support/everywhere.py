"""Searching everything that is stored for a text, as the owner of the database: every column of every table."""

from __future__ import annotations

import sqlalchemy as sa

from om_core.config.urls import normalise_database_url

COLUMNS = """
SELECT table_name, column_name FROM information_schema.columns
 WHERE table_schema = 'public' ORDER BY table_name, ordinal_position
"""


def places_of(text: str, url: str) -> list[str]:
    """`table.column` of every place that holds the text, whatever its case."""
    engine = sa.create_engine(normalise_database_url(url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        found = []
        for table, column in connection.execute(sa.text(COLUMNS)).fetchall():
            query = sa.text(f'SELECT count(*) FROM "{table}" WHERE "{column}"::text ILIKE :text')
            if connection.scalar(query, {"text": f"%{text}%"}):
                found.append(f"{table}.{column}")
    engine.dispose()
    return found
