"""The second mode: real processes over one thread, as fast as they can, one of them perhaps killed.

Not repeatable to the statement, as the single-process mode is, but with nothing of ours between the code and the
operating system. What a process was answered it writes to its output at once, so a killed one leaves its ledger.
"""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING, Final

from om_core.store.engine import PostgresStore
from tests.fuzz.operations import EXPECTED, TABLE
from tests.fuzz.world import World
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

THREAD: Final = "a"
OPERATIONS: Final = 60
LIMIT_S: Final = 90.0


def drive(url: str, seed: int, who: int, operations: int = OPERATIONS) -> None:
    """What one process does: operations in a row; prints every trace that was answered, and every finding."""
    rng = Random(f"{seed}:{who}")
    store = PostgresStore(url, pool_size=4)
    world = World(store, seed * 10 + who, threads=[THREAD], scope="thread")
    world.one_reader = False
    dialogue = world.dialogues[THREAD]
    dialogue.number = 1000 * who
    names = list(TABLE)
    weights = [TABLE[name].weight for name in names]
    told: set[str] = set()
    for _ in range(operations):
        name = rng.choices(names, weights)[0]
        try:
            TABLE[name].run(world, rng)
        except EXPECTED:
            pass
        except Exception as error:  # whatever else surfaces is a finding
            world.findings.append(f"surfaced: {name}: {type(error).__name__}: {error}")
        for trace in dialogue.stored - told:
            sys.stdout.write(f"stored {trace}\n")
        told |= dialogue.stored
        for finding in world.findings:
            sys.stdout.write(f"finding {finding}\n")
        world.findings.clear()
        sys.stdout.flush()
    world.close()
    store.close()


def run_processes(url: str, seed: int, count: int = 2) -> tuple[set[str], list[str]]:
    """Let processes drive the thread; the traces that were answered, and the findings.

    On every second seed one of them is killed in the middle.
    """
    rng = Random(f"{seed}:kill")
    command = [sys.executable, "-m", "tests.fuzz.processes", url, str(seed)]
    running = [
        subprocess.Popen([*command, str(who)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for who in range(1, count + 1)
    ]
    victim = rng.choice(running) if rng.random() < 0.5 else None
    lines: list[str] = []
    try:
        if victim is not None:
            assert victim.stdout is not None
            lines += [victim.stdout.readline().strip() for _ in range(rng.randint(1, 30))]  # it has got this far
            victim.kill()
        for process in running:
            out, err = process.communicate(timeout=LIMIT_S)
            lines += out.splitlines()
            if process is not victim and process.returncode:
                lines.append(f"finding process: ended with {process.returncode}: {err[-500:]}")
    finally:
        for process in running:
            process.kill()
            process.wait()
    return _split(lines)


def _split(lines: Sequence[str]) -> tuple[set[str], list[str]]:
    stored = {line.removeprefix("stored ") for line in lines if line.startswith("stored ")}
    return stored, [line.removeprefix("finding ") for line in lines if line.startswith("finding ")]


if __name__ == "__main__":
    from tests.fuzz.quiet import silence

    silence()
    drive(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
