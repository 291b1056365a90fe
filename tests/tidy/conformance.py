"""What memory does, section by section of its specification, and which tests show it.

A test that would fail if a section stopped being true carries `@pytest.mark.conforms("4.8", ...)`. Sections that begin
with 11 are faults of an earlier implementation that must not come true here. Every section has at least one test, or a
reason. `python -m tests.tidy.conformance` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tests.tidy.reports import PENDING, Marked, marked
from tests.tidy.sources import Finding, project_sources

HERE: Final = "tests/tidy/conformance.py"
MARK: Final = "conforms"
BEHAVIOUR: Final = {
    "1.1": "memory is on, off or read only for a call, and one engine serves a process",
    "1.2": "options of the whole",
    "1.3": "options of observation",
    "1.4": "options of reflection; which model a phase uses, with which settings",
    "1.5": "fractions, factors, absolute numbers and times, with every refusal",
    "1.6": "options that do not go together; the shared budget",
    "1.7": "thresholds of one thread",
    "1.8": "variables of the environment",
    "3.6": "when notes are made in the background",
    "3.7": "what the actor is shown, and in which order",
    "4.1": "the Observer's request",
    "4.2": "what the Observer is told",
    "4.3": "how messages, calls and results are written for the Observer",
    "4.4": "which attachments the Observer gets",
    "4.5": "how the Observer's answer is read",
    "4.6": "answers that repeat themselves",
    "4.7": "trying again after an outage",
    "4.8": "long pauses",
    "4.9": "one log for all threads of an owner",
    "4.10": "observing on request and without buffering",
    "5.1": "the Reflector's request, its levels and its candidates",
    "5.2": "the messages behind a generation",
    "5.3": "the part of the log that is condensed in the background",
    "5.4": "when a reflection starts, waits, and takes effect",
    "6.1": "what an extractor is, and what its name may be",
    "6.2": "values in the Observer's own answer",
    "6.3": "values by a call of their own",
    "6.4": "functions that are told values, and where values are kept",
    "6.5": "task, suggested reply, title",
    "6.6": "working memory",
    "7": "events, their payloads and their order",
    "8.1": "groups of notes",
    "8.2": "the tool for recall",
    "8.3": "recall of messages",
    "8.4": "recall of threads",
    "8.5": "search",
    "8.6": "the index",
    "9.1": "text",
    "9.2": "messages",
    "9.3": "images",
    "9.4": "files",
    "9.5": "nothing is counted twice",
    "9.6": "counting asks no provider",
    "10.1": "the methods of the engine",
    "10.2": "hooks",
    "10.3": "threads, clones, summaries, deletion",
    "10.4": "use without an agent framework",
}
FAULTS: Final = {
    "11.1": "an empty look at the messages wipes the log",
    "11.2": "a failed batch counts as sent",
    "11.3": "a reflection strands chunks",
    "11.4": "an answer that cannot be read moves the cursor",
    "11.5": "times as cursors lose messages",
    "11.6": "a cursor falls and text is doubled",
    "11.7": "notes are made of nothing",
    "11.8": "pending tokens are counted twice",
    "11.9": "one reflection is added to another with the wrong boundary",
    "11.10": "a boundary in lines does not survive a changed beginning",
    "11.11": "a slice cuts through notes that belong together",
    "11.12": "the last candidate is taken although a better one was there",
    "11.13": "a failure in the background passes for success",
    "11.14": "an activation forgets the task",
    "11.15": "another thread's messages stand as this thread's",
    "11.16": "a boundary stands behind messages that were not observed",
    "11.17": "what is shown of notes loses brackets, indentation and line ends",
    "11.18": "small threads starve",
    "11.18a": "without a usable database nothing is stored and nobody is told",
    "11.19": "the question vanishes while tools are called",
    "11.20": "nothing raw is left",
    "11.21": "a failing Observer ends the reply",
    "11.22": "minutes of retries within a turn",
    "11.23": "an activation that leaves too much passes for success",
    "11.24": "an activation goes by an earlier look",
    "11.25": "the blocking point does not block",
    "11.26": "one giant message goes out whole, and the log with it",
    "11.27": "a reply still being written is closed by its first part",
    "11.28": "status tells what was true a step ago",
    "11.29": "a lock lets several in",
    "11.30": "flags without owner, time or lease",
    "11.31": "state of threads is kept in the process without its database",
    "11.32": "two heads of one memory",
    "11.33": "the last writer of a whole value wins",
    "11.34": "a report overwrites a message",
    "11.35": "an activation of nothing is reported",
    "11.36": "closing forgets work under way",
    "11.37": "interleavings lose, strand and double",
    "11.38": "each step counts the whole window again",
    "11.39": "finding what stays takes quadratic time",
    "11.40": "a step reads all messages of all threads",
    "11.41": "everything is put into the index again each time",
    "11.42": "what a call is given grows with the log",
    "11.43": "counting sends attachments to a provider",
    "11.44": "a new day changes the prompt",
    "11.45": "negative counts, and scripts that count too little",
    "11.46": "an early activation moves one chunk",
    "11.47": "an early reflection holds up the turn at any size",
    "11.48": "one module of everything, with duplicates",
}
SECTIONS: Final = BEHAVIOUR | FAULTS
REASONS: Final[dict[str, str]] = {
    **dict.fromkeys(("8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "11.41"), f"{PENDING}recall"),
    "10.2": f"{PENDING}hooks",
}
"""Sections without a test: `PENDING` and the feature they belong to."""


def findings(marks: Iterable[Marked]) -> Iterator[Finding]:
    """Marks that name no section, sections that nothing shows, and reasons that are out of date."""
    tested = set()
    for mark in marks:
        if mark.entry in SECTIONS:
            tested.add(mark.entry)
        else:
            yield Finding(mark.path, mark.line, f"there is no section {mark.entry}", f"See {HERE}")
    for section, title in SECTIONS.items():
        if section in tested and section in REASONS:
            yield Finding(HERE, 1, f"{section} has both a test and a reason for having none", "Delete the reason")
        if section not in tested and section not in REASONS:
            yield Finding(HERE, 1, f"{section} ({title}) has no test", "Mark one, or give a reason in REASONS")


def table() -> Iterator[str]:
    """A line per section with the number of its tests, and below it the tests or the reason."""
    tests: dict[str, list[str]] = {}
    for mark in marked(project_sources(), mark=MARK):
        tests.setdefault(mark.entry, []).append(mark.test)
    for section, title in SECTIONS.items():
        found = tests.get(section, [])
        yield f"{section} {title} ({len(found)})"
        yield from (f"      {test}" for test in found or [REASONS.get(section, "no test yet")])
    distinct = {test for found in tests.values() for test in found}
    yield f"\n{len(SECTIONS)} sections, {len(tests)} shown by {len(distinct)} tests, {len(REASONS)} with a reason"


if __name__ == "__main__":
    print("\n".join(table()))
