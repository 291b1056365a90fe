"""Job rows of one tenant: inserted, fenced, finished, redriven. Claims and leases are in `system`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from om_core.domain.job import JobState, Queue
from om_core.ports import FinishedJob, Page
from om_core.store.cursors import decode_cursor, encode_cursor
from om_core.store.prepared import Prepared, given
from om_core.store.reach import of_threads_within
from om_core.store.rows import KNOWN, job_from, ref_from
from om_core.store.session import dumps
from om_core.store.tables import LIVE, jobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from om_core.domain.job import Job, JobKind, JobRef
    from om_core.domain.message import JsonObject
    from om_core.ports import NewJob
    from om_core.store.session import Session

FINAL = (JobState.COMPLETED, JobState.DISCARDED, JobState.CANCELLED, JobState.SUPERSEDED)
ATTEMPTS_KEPT = 20
"""Attempts remembered per job; a job that waits out a long outage does not grow without bound."""


def job_params(job: NewJob) -> dict[str, Any]:
    """A row for `om_insert_jobs_v1`."""
    return {
        "kind": job.kind.value,
        "queue": job.queue.value,
        "target": job.target,
        "thread": job.thread,
        "memory_id": job.memory_id,
        "thread_id": job.thread_id,
        "chunk_id": job.chunk_id,
        "reason": job.reason,
        "policy": job.policy,
        "input": job.input,
        "prompt_version": job.prompt_version,
        "traceparent": job.traceparent,
        "models": list(job.models),
    }


_FENCED = sa.and_(
    jobs.c.tenant_id == sa.bindparam("tenant"),
    jobs.c.id == sa.bindparam("job"),
    jobs.c.attempt == sa.bindparam("held"),
    jobs.c.state == sa.literal_column("'running'"),
)
"""This attempt still holds the job. The fence of every write a worker makes (DESIGN 5)."""
_KNOWN_KIND = jobs.c.kind.in_(list(KNOWN))
"""Work of other kinds belongs to newer code on the same database, and is neither shown nor touched."""
FIX = Prepared(sa.update(jobs).where(_FENCED).values(**given("from_seq", "to_seq", "input")))
_MORE: dict[str, sa.ColumnElement[Any]] = {
    "input_tokens": jobs.c.input_tokens + sa.bindparam("more_input"),
    "output_tokens": jobs.c.output_tokens + sa.bindparam("more_output"),
    "cost_usd": jobs.c.cost_usd + sa.bindparam("more_cost"),
}
SAVE = Prepared(
    sa.update(jobs)
    .where(_FENCED)
    .values(
        **given("partial"),
        **_MORE,
        # What is booked is no longer reserved.
        reserved_tokens=sa.func.greatest(sa.literal_column("0"), jobs.c.reserved_tokens - sa.bindparam("spent_tokens")),
        reserved_usd=sa.func.greatest(sa.literal_column("0"), jobs.c.reserved_usd - sa.bindparam("spent_usd")),
    )
)
COMPLETE = Prepared(
    sa.update(jobs)
    .where(_FENCED)
    .values(
        state=sa.literal_column("'completed'"),
        lease_owner=sa.null(),
        lease_expires_at=sa.null(),
        error=sa.null(),
        **_MORE,
        expired_leases=sa.literal_column("0"),
        attempts=sa.bindparam("attempts"),
        finished_at=sa.func.clock_timestamp(),
        partial=sa.literal_column("'[]'"),
    )
)


def _costs(result: FinishedJob) -> dict[str, Any]:
    return {
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
        "cost_usd": result.cost_usd,
    }


def _more(call: Mapping[str, Any]) -> dict[str, Any]:
    """What a call has cost, as the values of `_MORE`; nothing where it does not say."""
    return {
        "more_input": call.get("input_tokens", 0),
        "more_output": call.get("output_tokens", 0),
        "more_cost": call.get("cost_usd", 0.0),
    }


class JobRows:
    """Implements `ports.storage.Jobs`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _mine(self) -> sa.ColumnElement[bool]:
        return jobs.c.tenant_id == self._session.tenant_id

    @property
    def _within(self) -> tuple[sa.ColumnElement[bool], ...]:
        return of_threads_within(self._session, jobs.c.thread_id)

    def _fenced(self, job: Job) -> sa.ColumnElement[bool]:
        """This attempt still holds the job. The fence of every write a worker makes (DESIGN 5)."""
        return sa.and_(self._mine, jobs.c.id == job.id, jobs.c.attempt == job.attempt, jobs.c.state == "running")

    def insert(self, new: Sequence[NewJob]) -> tuple[JobRef, ...]:
        if not new:
            return ()
        [(refs,)] = self._session.hot("SELECT om_insert_jobs_v1(%s::json)", (dumps([job_params(job) for job in new]),))
        return tuple(ref_from(row) for row in refs or ())

    def older_live(self, job: Job) -> bool:
        older = sa.select(jobs.c.id).where(
            self._mine,
            jobs.c.thread_id == job.thread_id,
            jobs.c.kind == job.kind.value,
            jobs.c.id < job.id,
            sa.text(LIVE),
        )
        return bool(self._session.scalar(sa.select(older.exists())))

    def insert_discarded(self, job: NewJob, error: JsonObject) -> int:
        return int(
            self._session.scalar(
                sa.insert(jobs)
                .values(
                    tenant_id=self._session.tenant_id,
                    state="discarded",
                    error=error,
                    finished_at=sa.func.clock_timestamp(),
                    **job_params(job),
                )
                .returning(jobs.c.id)
            )
        )

    def get(self, job_id: int) -> Job | None:
        row = self._session.first(sa.select(jobs).where(self._mine, *self._within, jobs.c.id == job_id, _KNOWN_KIND))
        return None if row is None else job_from(row)

    def fix_input(self, job: Job, *, from_seq: int | None, to_seq: int | None, input: JsonObject) -> bool:
        return self._session.change(FIX, **self._fence(job), from_seq=from_seq, to_seq=to_seq, input=input) == 1

    def save_partial(self, job: Job, partial: Sequence[JsonObject]) -> bool:
        spent = _more(partial[-1])
        tokens = spent["more_input"] + spent["more_output"]
        changed = self._session.change(
            SAVE,
            **self._fence(job),
            **spent,
            partial=list(partial),
            spent_tokens=tokens,
            spent_usd=spent["more_cost"],
        )
        return changed == 1

    def _fence(self, job: Job) -> dict[str, object]:
        """The values of `_FENCED`."""
        return {"tenant": self._session.tenant_id, "job": job.id, "held": job.attempt}

    def finish(self, job: Job, result: FinishedJob) -> bool:
        if result == FinishedJob(
            state=JobState.COMPLETED,
            input_tokens=result.input_tokens,
            output_tokens=result.output_tokens,
            cost_usd=result.cost_usd,
            booked=result.booked,
            outcome=result.outcome,
        ):
            return self._complete(job, result)
        values: dict[str, Any] = {
            "state": result.state.value,
            "lease_owner": None,
            "lease_expires_at": None,
            "error": result.error,
            "failures": jobs.c.failures + int(result.failed),
            "expired_leases": jobs.c.expired_leases + 1 if result.outcome == "lease_expired" else 0,
            "attempts": self._with_attempt(job, result),
        }
        if not result.booked:
            values |= {name: jobs.c[name] + cost for name, cost in _costs(result).items()}
        if result.drop_partial:
            values["partial"] = []
        if result.policy is not None:
            values |= {"policy": result.policy, "models": list(result.models)}
        if result.state in FINAL:
            values |= {"finished_at": sa.func.clock_timestamp(), "partial": []}
        if result.narrowed_to is not None:
            values |= {
                "to_seq": result.narrowed_to,
                "input": {**job.input, "halved": True},
                "failures": 0,
                "partial": [],
            }
        if result.retry_after_s is not None:
            values["run_at"] = sa.func.clock_timestamp() + sa.cast(
                sa.literal(f"{result.retry_after_s} seconds"), sa.Interval
            )
        return self._session.execute(sa.update(jobs).where(self._fenced(job)).values(**values)).rowcount == 1

    def _complete(self, job: Job, result: FinishedJob) -> bool:
        """How nearly every job ends: nothing to remember but what it cost."""
        changed = self._session.change(
            COMPLETE,
            **self._fence(job),
            **_more({} if result.booked else _costs(result)),
            attempts=self._with_attempt(job, result),
        )
        return changed == 1

    @staticmethod
    def _with_attempt(job: Job, result: FinishedJob) -> list[JsonObject]:
        entry: JsonObject = {
            "attempt": job.attempt,
            "outcome": result.outcome,
            **_costs(result),
        }
        if result.error:
            entry["error"] = result.error.get("message")
        return [*job.attempts, entry][-ATTEMPTS_KEPT:]

    def lock_expired(self, job_id: int) -> Job | None:
        row = self._session.first(
            sa.select(jobs)
            .where(
                self._mine,
                jobs.c.id == job_id,
                jobs.c.state == "running",
                jobs.c.lease_expires_at < sa.func.clock_timestamp(),
            )
            .with_for_update(key_share=True, skip_locked=True)
        )
        return None if row is None else job_from(row)

    def await_observe(self, thread_id: int) -> JobRef | None:
        row = self._session.first(
            sa.update(jobs)
            .where(self._mine, jobs.c.target == f"thread:{thread_id}", jobs.c.kind == "observe", sa.text(LIVE))
            .values(
                awaited=True,
                queue=Queue.OBSERVATION.value,
                run_at=sa.case(
                    (jobs.c.state == "available", sa.func.least(jobs.c.run_at, sa.func.clock_timestamp())),
                    else_=jobs.c.run_at,
                ),
            )
            .returning(jobs.c.id, jobs.c.tenant_id, jobs.c.kind, jobs.c.queue, jobs.c.thread, jobs.c.attempt)
        )
        return None if row is None else ref_from(row)

    def live(self, thread_id: int, kind: JobKind) -> JobRef | None:
        row = self._session.first(
            sa.select(jobs.c.id, jobs.c.tenant_id, jobs.c.kind, jobs.c.queue, jobs.c.thread, jobs.c.attempt)
            .where(self._mine, jobs.c.thread_id == thread_id, jobs.c.kind == kind.value, sa.text(LIVE))
            .limit(1)
        )
        return None if row is None else ref_from(row)

    def rebuilds(self, memory_id: int) -> bool:
        found = sa.select(jobs.c.id).where(
            self._mine, jobs.c.memory_id == memory_id, jobs.c.kind == "rebuild", sa.text(LIVE)
        )
        return bool(self._session.scalar(sa.select(found.exists())))

    def running(self) -> int:
        [(found,)] = self._session.hot(
            "SELECT count(*) FROM jobs WHERE tenant_id = %s AND state = 'running' AND lease_expires_at > now()",
            (self._session.tenant_id,),
        )
        return int(found)

    def ask(self, job_id: int, guidance: str | None) -> None:
        self._session.execute(
            sa.text(
                "UPDATE jobs SET reason = 'manual', input = CASE WHEN CAST(:guidance AS text) IS NULL THEN input"
                " ELSE (input::jsonb || jsonb_build_object('guidance', CAST(:guidance AS text)))::json END"
                " WHERE tenant_id = :tenant AND id = :id"
            ),
            {"guidance": guidance, "tenant": self._session.tenant_id, "id": job_id},
        )

    def retry(self, job_id: int) -> JobRef | None:
        statement = (
            sa.update(jobs)
            .where(self._mine, jobs.c.id == job_id, jobs.c.state == "discarded")
            .values(state="available", failures=0, expired_leases=0, finished_at=None, run_at=sa.func.clock_timestamp())
            .returning(jobs.c.id, jobs.c.tenant_id, jobs.c.kind, jobs.c.queue, jobs.c.thread, jobs.c.attempt)
        )
        try:
            row = self._session.first(statement)
        except sa_exc.IntegrityError as error:
            if "jobs_live_key" in str(error.orig):
                return None
            raise
        return None if row is None else ref_from(row)

    def cancel(self, job_id: int) -> bool:
        changed = self._session.execute(
            sa.update(jobs)
            .where(self._mine, jobs.c.id == job_id, sa.text(LIVE))
            .values(
                state="cancelled",
                attempt=jobs.c.attempt + 1,  # a worker that holds it writes nothing
                lease_owner=None,
                lease_expires_at=None,
                partial=[],
                finished_at=sa.func.clock_timestamp(),
            )
        )
        return changed.rowcount == 1

    def page(
        self,
        *,
        state: str | None,
        kind: str | None,
        thread_id: int | None,
        cursor: str | None,
        limit: int,
        resource_id: str | None = None,
    ) -> Page[Job]:
        before = decode_cursor(cursor)
        reached = of_threads_within(self._session, jobs.c.thread_id, resource_id)
        query = sa.select(jobs).where(self._mine, *reached, _KNOWN_KIND)
        query = query.order_by(jobs.c.id.desc()).limit(limit + 1)
        for column, value in ((jobs.c.state, state), (jobs.c.kind, kind), (jobs.c.thread_id, thread_id)):
            if value is not None:
                query = query.where(column == value)
        if before is not None:
            query = query.where(jobs.c.id < before)
        found = [job_from(row) for row in self._session.rows(query)]
        more = len(found) > limit
        return Page(tuple(found[:limit]), encode_cursor(found[limit - 1].id) if more else None)
