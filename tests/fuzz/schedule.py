"""Schedules: drawn from a seed, played on the stage, and made as short as they still fail."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

import psycopg2.errors
import psycopg2.extensions

from om_core.domain.invariants import Marks
from tests.fuzz import removals  # noqa: F401 - puts its operations into the table
from tests.fuzz.actors import Actor, Fault, FaultKind, Stage, gated
from tests.fuzz.checks import check, check_gone, read_all, settle, threads, wake_all
from tests.fuzz.operations import EXPECTED, TABLE
from tests.fuzz.processes import THREAD, run_processes
from tests.fuzz.world import TENANT, World

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from om_core.store.engine import PostgresStore

OPERATIONS: Final = 40
_NO_REMOVAL: Final = dict.fromkeys(
    ("delete_message", "forget_and_condense", "rewind", "delete_thread", "restore_generation"), 0.0
)
_BUILD: Final = {**_NO_REMOVAL, "say": 3, "work": 3, "activate_by_hand": 4, "context": 0.3, "cancel_job": 0}
THEMES: Final[Mapping[str, tuple[Mapping[str, float], ...]]] = {
    "everything": ({},),
    "readers": ({**_NO_REMOVAL, "context": 2, "flush": 8},),
    "removal": (
        _BUILD,
        {**_NO_REMOVAL, "say": 0.5, "context": 0.3, "forget_and_condense": 16, "work": 2, "activate_by_hand": 2},
    ),
    "leases": ({"take_over": 2, "expire_leases": 2, "deliver_ring": 2, "pass_backoff": 2},),
}
"""Phases of equal length, each with how much more of an operation it has, or less."""
AT_ONCE: Final = 4
MOST: Final = 12
"""Operations under way at once: those that move, and those with the frozen ones."""
TABLES: Final = (
    "events, usage, jobs, reflections, chunks, messages, threads, memories, workers, working_memory, extractions"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a schedule, with its own dice, and what goes wrong with it."""

    number: int
    name: str
    fault: Fault | None = None

    def __str__(self) -> str:
        wrong = f" [{self.fault.kind} at point {self.fault.at}]" if self.fault else ""
        return f"{self.number}:{self.name}{wrong}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule: which operations start, in this order; how they interleave follows from the seed."""

    seed: int
    steps: tuple[Step, ...]

    @property
    def scope(self) -> str:
        return "resource" if self.seed % 5 == 4 else "thread"

    @property
    def theme(self) -> str:
        return list(THEMES)[self.seed % len(THEMES)]


@dataclass(slots=True)
class Outcome:
    """What came of a schedule."""

    plan: Plan
    findings: list[str] = field(default_factory=list)
    trail: list[str] = field(default_factory=list)


def draw(seed: int, operations: int = OPERATIONS) -> Plan:
    """The schedule of a seed, with the mixture of its theme: what needs some things often is not found by schedules that
    have a little of everything.
    """
    rng = Random(f"{seed}:plan")
    names = list(TABLE)
    phases = [[TABLE[name].weight * phase.get(name, 1) for name in names] for phase in THEMES[Plan(seed, ()).theme]]
    later = [Step(number, name, _draw_fault(rng, name)) for number, name in _numbered(rng, names, phases, operations)]
    return Plan(seed, (Step(0, "say"), *later))


def _numbered(rng: Random, names: list[str], phases: list[list[float]], operations: int) -> Iterator[tuple[int, str]]:
    for number in range(1, operations):
        [name] = rng.choices(names, phases[number * len(phases) // operations])
        yield number, name


def _draw_fault(rng: Random, name: str) -> Fault | None:
    """Readers are slow more often than they die: what they store may be about a prefix that is gone."""
    if name == "context" and rng.random() < 0.5:
        return Fault("freeze", rng.randint(*rng.choice([(1, 12), (8, 13)])), rng.choice([60, 150, 400]))
    if rng.random() < 0.5:
        return None
    kinds: list[FaultKind] = ["crash", "cut", "freeze"]
    [kind] = rng.choices(kinds, [3, 1, 4])
    return Fault(kind, rng.randint(1, 16), rng.choice([20, 60, 150]))


def play(store: PostgresStore, admin: psycopg2.extensions.connection, plan: Plan) -> Outcome:
    """Run a schedule from an empty database, drain it, and check everything."""
    empty(admin)
    random.seed(f"{plan.seed}:jitter")
    names = ("a", "b") if plan.scope == "resource" else ("a",)
    world = World(store, plan.seed, threads=names, scope=plan.scope)
    outcome = Outcome(plan)
    try:
        store.system.heartbeat(name="fuzz", queues=["observation"], slots=1, running=0, version="")
        with gated():
            _interleave(world, Stage(admin), plan, outcome)
        if not world.findings:
            _drain(world, admin)
    except Exception as error:  # whatever the drain meets is a finding of this seed
        world.findings.append(f"drain: {type(error).__name__}: {error}")
    finally:
        world.close()
    outcome.findings = world.findings
    return outcome


def empty(admin: psycopg2.extensions.connection) -> None:
    """No rows, and ids from 1 again."""
    for left in reversed(range(5)):
        try:
            with admin.cursor() as cursor:
                cursor.execute(f"TRUNCATE {TABLES} RESTART IDENTITY CASCADE")
            return
        except psycopg2.errors.DeadlockDetected:  # a thread of the schedule before has not seen yet that it is over
            if not left:
                raise


def play_processes(store: PostgresStore, admin: psycopg2.extensions.connection, url: str, seed: int) -> Outcome:
    """The same with two real processes, which interleave as they like."""
    empty(admin)
    world = World(store, seed, threads=[THREAD], scope="thread")
    outcome = Outcome(Plan(seed, ()))
    try:
        store.system.heartbeat(name="fuzz", queues=["observation"], slots=1, running=0, version="")
        world.dialogues[THREAD].stored, world.findings = run_processes(url, seed)
        _drain(world, admin)
    except Exception as error:  # whatever the drain meets is a finding of this seed
        world.findings.append(f"drain: {type(error).__name__}: {error}")
    finally:
        world.close()
    outcome.findings = world.findings
    return outcome


def _drain(world: World, admin: psycopg2.extensions.connection) -> None:
    """First only what is live is done: nothing may be stranded. Then time passes, and everything else is done."""
    marks: dict[int, Marks] = {}
    read_all(world)
    settle(world)
    check(world, marks)
    read_all(world)
    for _ in range(2):  # what an activation leaves raw grows old only after it
        wake_all(world)
        settle(world)
        check(world, marks)
    check_gone(world, admin)
    for thread in threads(world):
        if thread.unbuffered_tokens:  # tombstones alone wait for the next message
            world.findings.append(f"stranded: {thread.unbuffered_tokens} tokens after four idle hours")


def _interleave(world: World, stage: Stage, plan: Plan, outcome: Outcome) -> None:
    rng = Random(f"{plan.seed}:turns")
    waiting = list(reversed(plan.steps))
    watch: dict[int, Marks] = {}
    favourite: Actor | None = None
    while waiting or stage.actors:
        moving = [actor for actor in stage.actors if not actor.frozen]
        room = len(moving) < AT_ONCE and len(stage.actors) < MOST
        if waiting and room and (not moving or rng.random() < 0.15):
            stage.enter(_actor(world, plan, waiting.pop()))
        ready = stage.ready()
        if not ready:
            raise TimeoutError("everybody waits for a lock")
        if favourite not in ready or rng.random() < 0.2:
            favourite = rng.choice(ready)
        stage.step(favourite)
        outcome.trail.append(favourite.name)
        for ended in stage.leave():
            _judge(world, ended)
        _watch(world, stage, watch)


def _actor(world: World, plan: Plan, step: Step) -> Actor:
    dice = Random(f"{plan.seed}:{step.number}")
    run = TABLE[step.name].run
    return Actor(str(step), lambda: run(world, dice), step.fault)


def _judge(world: World, actor: Actor) -> None:
    """An operation may be refused, and fails with its connection; nothing else may surface."""
    error = actor.error
    if error is not None and not actor.cut and not isinstance(error, EXPECTED):
        world.findings.append(f"surfaced: {actor.name}: {type(error).__name__}: {error}")


def _watch(world: World, stage: Stage, seen: dict[int, Marks]) -> None:
    """Cursors only rise, at every moment."""
    for thread_id, marks in stage.marks(TENANT).items():
        before = seen.get(thread_id)
        seen[thread_id] = marks
        if before is None or before == marks:
            continue
        may_fall = {"reflected_position"} if world.rebased else set[str]()
        rising = [name for name in Marks.__slots__ if name not in may_fall]
        fallen = [name for name in rising if getattr(marks, name) < getattr(before, name)]
        if fallen:
            world.findings.append(f"cursors: {fallen} fell: {before} -> {marks}")


def shrink(store: PostgresStore, admin: psycopg2.extensions.connection, failed: Outcome) -> Outcome:
    """Drop operations, many at a time and then one by one, while the schedule still fails."""
    best, size = failed, max(1, len(failed.plan.steps) // 2)
    while True:
        start, shorter = 0, False
        while start < len(best.plan.steps):
            kept = best.plan.steps[:start] + best.plan.steps[start + size :]
            tried = play(store, admin, Plan(best.plan.seed, kept)) if kept else None
            if tried is not None and tried.findings:
                best, shorter = tried, True
            else:
                start += size
        if size == 1 and not shorter:
            return best
        size = max(1, size // 2)
