"""The part of `Memory` that says what it costs (API 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from om_core.domain.errors import InvalidInputError
from om_core.ports import Page, UsageBy, UsageQuery
from om_core.services.context import find_snapshot
from om_core.services.views import usage_view

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services

USAGE_BY: Final[tuple[UsageBy, ...]] = get_args(UsageBy)
DEFAULT_BY: Final[tuple[UsageBy, ...]] = ("day", "kind", "model")


SUMS: Final = ("calls", "input_tokens", "output_tokens", "cost_usd")


def usage_columns(by: Sequence[str]) -> list[str]:
    """The columns of a table of usage: a thread is named with its resource."""
    groups = (name for one in by for name in (("resource", "thread") if one == "thread" else (one,)))
    return [*dict.fromkeys(groups), *SUMS]


class UsageMethods:
    """Methods of `Memory`, which has the services and the tenant."""

    services: Services
    tenant: str

    def usage(
        self,
        *,
        by: Sequence[UsageBy] = DEFAULT_BY,
        resource: str | None = None,
        thread: str | None = None,
        first_day: date | None = None,
        last_day: date | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[JsonObject]:
        """What model calls took: their number, tokens and US dollars, summed, ordered by what they are summed by.

        Args:
            by: each of `USAGE_BY` at most once; none: one sum of everything.
            resource: only this resource's.
            thread: only this thread's; a deleted one is not found, and counts where its resource does.
            first_day: UTC.
            last_day: UTC, included.
            cursor: `next_cursor` of the page before.
            limit: items per page.

        Raises:
            InvalidInputError: `by` holds something else, or the cursor is of another list.
            NotFoundError, AmbiguousThreadError: as for every thread.
        """
        if len(set(by)) < len(by) or not set(by) <= set(USAGE_BY):
            raise InvalidInputError(f"each of {', '.join(USAGE_BY)} at most once", path="by")
        with self.services.store.reading(self.tenant) as tx:
            thread_id = None if thread is None else find_snapshot(tx, thread, resource).thread.id
            page = tx.usage(
                UsageQuery(
                    by=tuple(by),
                    resource=resource,
                    thread_id=thread_id,
                    first_day=first_day,
                    last_day=last_day,
                    cursor=cursor,
                    limit=limit,
                )
            )
        return Page(tuple(map(usage_view, page.items)), page.next_cursor)
