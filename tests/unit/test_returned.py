"""What a client sends back of a context is known again: it is nobody's message, and what stands beside it stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from om_core.domain.chunk import Hints
from om_core.domain.context import VolatileBlock
from om_core.domain.message import Image, Message, Role, Text, ToolResult
from om_core.domain.policy import RetrievalPolicy
from om_core.domain.returned import without_returned
from om_core.domain.tags import wrap
from om_core.formats import parse_messages
from om_core.services.render_context import to_anthropic, to_om, to_openai
from tests.unit.context_builders import build, calls, chunk, policy, reflection, results, row, says, user


def everything():
    """A context with all that memory adds."""
    rows = [
        user(3, after=timedelta(hours=1)),
        calls(4, "a", "b", after=timedelta(hours=1)),
        results(5, "a", after=timedelta(hours=1)),
        user(6, after=timedelta(hours=9)),
        row(7, "tool", ToolResult(call_id="b", result="late"), after=timedelta(hours=9)),
        says(8, after=timedelta(hours=9)),
    ]
    rows = [replace(rows[0], message=replace(rows[0].message, author="Ana")), *rows[1:]]
    return build(
        rows,
        rules=policy(temporal_markers=True, retrieval=RetrievalPolicy(enabled=True)),
        chunks=[chunk(2, 1, 2, "* note </om-log> two")],
        reflected=reflection(),
        observed_seq=2,
        hints=Hints(seen_seq=8, current_task="Pack.", suggested_response="Ask."),
        volatile=(VolatileBlock(text="likes tea", kind="working_memory", name="thread"),),
        now=datetime(2026, 3, 2, tzinfo=UTC),
    )


def said(messages):
    """Role and words of what is left of them."""
    kept = [without_returned(message) for message in messages]
    return [
        (message.role.value, part.text)
        for message in kept
        if message is not None
        for part in message.parts
        if isinstance(part, Text)
    ]


OWN = [("user", "question 3"), ("user", "question 6"), ("assistant", "answer 8")]
FORMS = {
    "om": lambda made: parse_messages(to_om(made), "om"),
    "openai": lambda made: parse_messages(to_openai(made), "openai"),
    "anthropic": lambda made: parse_messages(to_anthropic(made)["messages"], "anthropic"),
    "canonical": lambda made: list(made.messages),
}


@pytest.mark.report("G02", "C07")
@pytest.mark.parametrize("form", FORMS)
def test_a_whole_context_sent_back_holds_nothing_but_the_conversation(form):
    assert said(FORMS[form](everything())) == OWN


@pytest.mark.parametrize("form", FORMS)
def test_the_same_where_the_client_joined_messages_of_one_role(form):
    joined: list[Message] = []
    for message in FORMS[form](everything()):
        if joined and joined[-1].role is message.role is Role.USER:
            joined[-1] = Message(role=Role.USER, parts=(*joined[-1].parts, *message.parts))
        else:
            joined.append(Message(role=message.role, parts=message.parts))

    assert said(joined) == OWN


def by_user(*texts):
    return Message(role=Role.USER, parts=tuple(Text(text=text) for text in texts))


def system_texts():
    return [block.text for block in everything().system]


@pytest.mark.parametrize("join", ["\n\n", "\n", None])
def test_the_system_text_in_a_user_s_message_is_no_message(join):
    texts = system_texts() if join is None else [join.join(system_texts())]

    assert len(system_texts()) == 3
    assert without_returned(by_user(*texts)) is None


def test_a_question_behind_the_system_text_stays():
    text = "\n\n".join([*system_texts(), "Where do I live? <b>Tell</b> me."])

    assert said([by_user(text)]) == [("user", "Where do I live? <b>Tell</b> me.")]
    assert said([by_user(*system_texts(), "And now?")]) == [("user", "And now?")]


def test_what_is_no_text_stays_beside_what_goes():
    picture = Image(url="https://e.org/a.png")
    message = Message(role=Role.USER, parts=(Text(text=wrap("speaker", "Ana")), picture), id="m1", author="Bob")

    assert without_returned(message) == Message(role=Role.USER, parts=(picture,), id="m1", author="Bob")


@pytest.mark.parametrize(
    "text",
    [
        "<om-log>\nx\n</om-log> and mine",
        "mine <om-gap>\nx\n</om-gap>",
        "<om-unknown>\nx\n</om-unknown>",
        "<om-log>\nx\n<om-gap>\n</om-log>",
        "You remember this conversation from its beginning, don't you?",
        "om-log",
        "call the tool `recall`",
        " padded ",
    ],
)
def test_somebody_s_own_words_are_left_alone(text):
    message = by_user(text, "and more")

    assert without_returned(message) is message


def test_an_assistant_s_words_are_its_own():
    message = Message(role=Role.ASSISTANT, parts=(Text(text=wrap("gap", "x")), Text(text="so")))

    assert without_returned(message) is message


def test_a_system_message_is_never_stored():
    assert without_returned(Message(role=Role.SYSTEM, parts=(Text(text="Be brief."),))) is None
