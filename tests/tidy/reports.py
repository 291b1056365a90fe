"""How systems of this kind have failed their users, and which tests hold each such failure off.

A test that would fail if an entry came true here carries `@pytest.mark.report("A01", ...)`. An entry of a complete
theme has at least one such test, or a reason why it cannot come true. `python -m tests.tidy.reports` prints the table.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.tidy.sources import Finding, Source, project_sources

HERE: Final = "tests/tidy/reports.py"
COMPLETE: Final = frozenset("ABCDEFGHJKMNPQR")
"""Themes of which every entry has a test, or a reason that is not `PENDING`."""
PENDING: Final = "pending: "
"""How the reason of an entry begins whose feature is still to come."""
OWN_TARGETS: Final = ("tests/faults/", "tests/fuzz/")
"""Tests that `make test` does not run: they may carry a mark, and do not count."""
THEMES: Final = {
    "A": "triggers and thresholds",
    "B": "activation, and what the actor sees",
    "C": "identity, order and storing of messages",
    "D": "calls, results and reasoning",
    "E": "the Observer's answers",
    "F": "the Reflector",
    "G": "provenance and feedback",
    "H": "hints, working memory, extracted values, titles",
    "I": "scope, identity, several people",
    "J": "concurrency, queues, crashes",
    "K": "model failures",
    "L": "counting tokens, attachments",
    "M": "text, types and cursors in Postgres",
    "N": "time",
    "O": "recall",
    "P": "removal, clones, shutdown",
    "Q": "prompt caches, cost, process memory",
    "R": "security and privacy",
    "S": "visibility",
}
TITLES: Final = {
    "A01": "a message above every threshold is observed, and stays in sight while it is the question",
    "A02": "a thread of calls and results is observed, and is raw in the prompt until it is",
    "A03": "an activation that leaves too much is followed by more of it, or by a wait for notes",
    "A04": "between threshold and ceiling work starts in the background and turns go on",
    "A05": "one gauge decides: what is due is also done, however short its rendering",
    "A06": "a small tail is observed once it is old, or when somebody asks",
    "A07": "half a reply starts nothing: an answer still being written is observed whole or not yet",
    "A08": "a call without its result, and all behind it, waits",
    "A09": "chunks become notes at the steps of a long turn, not only when the user speaks",
    "A12": "work on closing a turn is off unless asked for, and then happens",
    "A15": "messages from the plainest client are observed; where nobody works, status says so",
    "A16": "a setting that is a factor or a number means what it says, or is refused",
    "B01": "an activation leaves the retention floor of raw messages",
    "B02": "of all prefixes of chunks the one nearest to the target goes",
    "B04": "a context is smaller after an activation, and each report of one exists once",
    "B05": "the question of the running turn is in every context of that turn",
    "B06": "an activation goes by the rows it has locked, not by what its caller read before",
    "B08": "a number of last messages is no option: the floor is in tokens, and a setting nobody reads is refused",
    "B09": "the words around the notes say whose conversation they are from",
    "B10": "what is handed to another agent holds the notes and nothing that memory made up",
    "B11": "after an activation the task stands in the prompt and the newest user message is raw",
    "B15": "a prompt that is too long for the actor's model can be had shorter at once, without a model call",
    "B16": "memory that somebody else handles for a call is off for it, visibly",
    "C01": "a message is one row however often it is sent",
    "C02": "two savings of one reply never overwrite each other",
    "C03": "messages are stored alike, whatever becomes of their notes",
    "C06": "what is shown for one call only is neither stored nor observed nor counted",
    "C07": "what memory itself puts into a prompt is never stored",
    "C08": "a reminder sent with every turn stands in the prompt once",
    "C09": "an observed message never changes: what comes later of it is a row of its own",
    "C11": "a client that sends its whole history again stores only what is new, under whatever ids",
    "C12": "lists that callers pass are left as they were",
    "C14": "every mixture of parts comes back as it was sent",
    "D01": "a result that comes after its call was observed is shown with its call",
    "D02": "no prompt holds a call without result or a result without call",
    "D03": "the Observer reads arguments and outcome of every call, also of failed and denied ones",
    "D05": "parallel calls and their reasoning stay in one message, in order",
    "D07": "reasoning stays with what it belongs to, and its payload comes back byte for byte",
    "D08": "counting never fails: what is unknown is counted by its size",
    "D10": "opaque and overlong results are cut for the Observer, and counted in full",
    "D13": "every cut falls where no pair is torn",
    "E01": "an answer that repeats itself is no note: it is asked for again, differently",
    "E03": "an honest summary of monotonous input is accepted, and no verdict on notes ends a turn",
    "E04": "of a refused answer enough is kept to see what was wrong with it",
    "E05": "a stated nothing, an unusable answer and an error are three things",
    "E06": "an answer that may say nothing ends its job",
    "E07": "a backlog larger than the Observer's window is done in slices that fit",
    "E08": "earlier notes in the Observer's prompt are bounded, the newest first",
    "E10": "answers in another form than asked for are read, or refused, and never taken for empty",
    "E11": "examples, fences and braces around an answer do not hide it",
    "E14": "examples in the instructions keep to the instructions' own rules",
    "E15": "finished work is noted as finished and stays so",
    "E17": "a fact that is said again does not pile up",
    "E18": "the Observer sees what is known already",
    "F01": "a reflection that stays too long is not made again at once",
    "F02": "an empty or unusable reflection replaces nothing",
    "F03": "a reflection without progress holds nobody up",
    "F06": "the wish to be shorter becomes stronger from try to try",
    "F07": "where notes come from is kept beside the text, not in it",
    "F09": "a reflection names nothing by ids that could be wrong",
    "F10": "only what became shorter counts as progress",
    "G01": "instructions stand in the system role only, and come out of no answer",
    "G02": "what memory shows is not observed again",
    "G04": "each line names its speaker, and each fact its source",
    "G05": "another thread's open work is not this thread's",
    "H01": "a hint is dropped once the conversation has moved on",
    "H03": "a hint that is switched off is neither asked for nor shown",
    "H04": "an answer without the wrapper of a value is no empty value",
    "H05": "a change of one part of working memory keeps the others",
    "H06": "two writers of working memory do not lose each other's words",
    "H07": "a background call has no identity of a request",
    "H11": "keys of stored values are data",
    "I01": "a missing id is refused, and never becomes a shared one",
    "I02": "a nested agent does not change the identity of its caller",
    "I03": "who owns what a worker writes comes from its job",
    "I05": "a context reads a bounded number of rows, whatever the other threads hold",
    "I06": "the narrowest scope is the default",
    "I07": "what belongs to others is not found by its id either",
    "I08": "every list goes through the same filter, and an empty one means nothing",
    "I10": "several people in a thread are told apart",
    "J01": "first calls that meet create one thread and one memory",
    "J02": "work held by a dead worker is taken over, and a late one writes nothing",
    "J03": "parallel turns of one owner do not deadlock",
    "J04": "a turn that waits for notes gets them from a worker with a single slot",
    "J05": "a job of a killed worker is done by another",
    "J07": "a finished job says so, in the transaction that stores its result",
    "J08": "work that can be claimed is claimed, whoever else is stuck",
    "J09": "a backlog is worked off by the trigger of its first piece",
    "J10": "what failed is counted, put off and tried again; new messages of a closed turn are observed",
    "J11": "a failure is recorded although its transaction is undone",
    "J12": "a stored step is observed although broker and workers were away",
    "J14": "a job that is delivered twice is done once",
    "J15": "two runs over the same messages store one of them",
    "J18": "a slow model holds no connection",
    "J19": "a worker that is told to stop hands back what it cannot finish in time",
    "J20": "work in flight is a lease that ends by itself",
    "J21": "a result survives a broken connection, and is stored once",
    "J23": "an unexpected error in the background is recorded, and the process goes on",
    "K01": "an outage of the Observer costs a turn at most its deadline",
    "K02": "a model that refuses is called rarely, and work resumes by itself",
    "K03": "every error of a model has a class, by table",
    "K05": "what was asked for by hand fails aloud",
    "K06": "a server that never answers holds a job no longer than its time",
    "K09": "models in every form are resolved in one place",
    "K10": "the end of a turn waits for nothing",
    "K11": "background work leaves a small model room",
    "L01": "a picture is counted as a picture wherever it stands",
    "L02": "bytes of a picture never reach a model as text",
    "L03": "a file is counted by its size, or as its sender says",
    "L04": "what counts is what the actor sees, not what the Observer is shown of it",
    "L05": "reasoning that is not sent again counts nothing",
    "L07": "counts can be set right by what the provider reports",
    "L09": "an Observer that reads only text gets only text",
    "L11": "one tokenizer serves a process",
    "M01": "NUL never reaches the database, wherever it stands",
    "M02": "half characters never reach database, hash or wire",
    "M03": "messages of the same instant are each observed once",
    "M05": "what commits late stands behind, and is observed",
    "M07": "code refuses a schema that is not its own, and says what to do",
    "M08": "removed rows are on no path",
    "M10": "older code works beside newer code on one database",
    "N01": "days are the user's, not the server's",
    "N02": "every time in a prompt names its zone",
    "N04": "times in every form become one",
    "N05": "notes are dated by their messages",
    "N09": "a long pause is marked in the prompt and stored nowhere",
    "O02": "recall in a thread knows its thread",
    "O03": "a tool offers what works",
    "O04": "a fact that was never observed is found",
    "O06": "every list says whether there is more",
    "O08": "no text gets another text's result from a cache",
    "O10": "sources that are gone are named as gone",
    "P01": "deleting a thread leaves no row of it",
    "P02": "what was deleted is not found any more",
    "P03": "a worker that holds deleted work writes nothing, and nothing comes back",
    "P04": "a clone is complete and its own",
    "P05": "closing ends background work, and no job is lost by it",
    "P06": "a deletion deletes what it names and nothing else",
    "Q01": "old notes keep their bytes when new ones come",
    "Q03": "spending stops at its limit",
    "Q05": "what a call is given stays the same size, cycle after cycle",
    "Q06": "a step costs the same statements and counts only what is new",
    "Q07": "what a process remembers of threads is bounded",
    "Q08": "many short messages are few calls",
    "R01": "secrets are in no note, no prompt of memory and no log",
    "R02": "words of tools become no wishes of the user",
    "R06": "ids and texts cannot forge structure, and no address is fetched",
    "R07": "a narrow key stays narrow",
    "S01": "status shows for every thread what fails",
    "S03": "failures in the background are logged like all others",
    "S04": "an event is sent once what it reports can be read",
}
REASONS: Final[dict[str, str]] = {
    **dict.fromkeys(("I06", "I07", "I08", "O02", "O03", "O04", "O08", "O10"), f"{PENDING}recall"),
    "L07": f"{PENDING}counts corrected by what providers report",
}
"""Entries without a test: why they cannot come true here, or `PENDING` and the feature they belong to."""


@dataclass(frozen=True, slots=True)
class Marked:
    """One id in the mark of one test."""

    entry: str
    test: str
    path: str
    line: int


def marked(sources: Iterable[Source], *, mark: str = "report") -> Iterator[Marked]:
    """Every mark of that name in the tests."""
    for source in sources:
        if not source.path.startswith("tests/") or not source.is_python:
            continue
        for function in source.functions():
            for call in (node for each in function.decorator_list for node in ast.walk(each)):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == f"pytest.mark.{mark}":
                    for argument in call.args:
                        entry = str(argument.value) if isinstance(argument, ast.Constant) else ast.unparse(argument)
                        yield Marked(entry, f"{source.path}::{function.name}", source.path, call.lineno)


def findings(marks: Iterable[Marked], *, complete: frozenset[str] = COMPLETE) -> Iterator[Finding]:
    """Marks that name nothing, entries of complete themes that nothing holds off, and reasons that are out of date."""
    tested = set()
    for mark in marks:
        if mark.entry not in TITLES:
            yield Finding(mark.path, mark.line, f"there is no report {mark.entry}", f"See {HERE}")
        elif not mark.path.startswith(OWN_TARGETS):
            tested.add(mark.entry)
    for entry in TITLES:
        reason = REASONS.get(entry)
        if entry in tested and reason is not None:
            yield Finding(HERE, 1, f"{entry} has both a test and a reason for having none", "Delete the reason")
        if entry[0] in complete and entry not in tested and (reason is None or reason.startswith(PENDING)):
            yield Finding(HERE, 1, f"{entry} ({TITLES[entry]}) has no test", "Mark one, or give a reason in REASONS")


def table() -> Iterator[str]:
    """A line per entry, and below it its tests or its reason."""
    tests: dict[str, list[str]] = {}
    for mark in marked(project_sources()):
        tests.setdefault(mark.entry, []).append(mark.test)
    for theme, about in THEMES.items():
        yield f"\n{theme}. {about}"
        for entry in (name for name in TITLES if name[0] == theme):
            yield f"  {entry} {TITLES[entry]}"
            yield from (f"      {test}" for test in tests.get(entry, [REASONS.get(entry, "no test yet")]))


if __name__ == "__main__":
    print("\n".join(table()))
