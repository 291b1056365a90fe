"""Conversations in French, Chinese, Hebrew and Arabic through the whole pipeline: nothing lost, nothing broken, tokens right."""

from __future__ import annotations

import re

import pytest

from om_core.domain.message import JsonObject, text_of
from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from om_core.tokens import MESSAGE_OVERHEAD, PIECE, load_encoding
from tests.support.fixtures import COUNTER
from tests.support.jobs import work_off

RESOURCE = "polyglot"
TURNS = 40
OPTIONS: JsonObject = {
    "model": "offline/extractive",
    "observation": {
        "message_tokens": 1_200,
        "buffer_tokens": 0.5,
        "provider_options": {"offline": {"compression": 4}},
    },
    "reflection": {"observation_tokens": 100_000},
}
FRAME = re.compile(r"^Date: .*$|^\* \S+ |\(\d\d:\d\d\)|\(May \d+\)|\(April \d+\)|User:|Assistant:|[;.،,]", re.MULTILINE)
"""What notes are set in: everything else is words of the conversation."""
LONG_TEXT_ERROR = 0.001
"""Of a count, where a text is longer than the piece that is encoded at a time; shorter texts are counted exactly."""

TALK = {
    "fr": (
        [
            "Ma sœur Éléonore a déménagé à Lyon hier, au numéro {n} de la rue Mercière.",
            "Nous avons décidé de peindre la chambre {n} en bleu parce que le gris est trop triste.",
            "Je suis allergique aux arachides et je n'en mange jamais.",
            "J'ai acheté {n} kilos de cerises au marché des Capucins.",
        ],
        ["Merci beaucoup, c'est noté !", "D'accord. Veux-tu autre chose ?", "La réservation {n} est confirmée pour vendredi."],
        ["Éléonore", "Lyon", "arachides", "jamais"],
    ),
    "zh": (
        [
            "我姐姐李雷昨天搬到了上海人民路{n}号。",
            "我们决定把{n}号房间漆成蓝色，因为灰色太暗了。",
            "我对花生过敏，从来不吃花生。",
            "我在菜市场买了{n}斤樱桃。",
        ],
        ["好的，记下了！", "没关系，还需要别的吗？", "编号{n}的预订已确认，星期五入住。"],
        ["上海", "花生过敏", "从来不吃", "蓝色"],
    ),
    "he": (
        [
            "אחותי נועה עברה אתמול לחיפה, לרחוב הרצל {n}.",
            "החלטנו לצבוע את חדר {n} בכחול, כי האפור עצוב מדי.",
            "אני אלרגית לבוטנים ולעולם לא אוכלת אותם.",
            "קניתי {n} קילו דובדבנים בשוק הכרמל.",
        ],
        ["תודה רבה, רשמתי!", "בסדר. עוד משהו?", "הזמנה {n} אושרה ליום שישי."],
        ["נועה", "לחיפה", "לבוטנים", "לעולם לא"],
    ),
    "ar": (
        [
            "انتقلت أختي ليلى أمس إلى بيروت، شارع الحمراء رقم {n}.",
            "قررنا طلاء الغرفة {n} باللون الأزرق لأن الرمادي حزين جدا.",
            "عندي حساسية من الفول السوداني ولا آكله أبدا.",
            "اشتريت {n} كيلو كرز من السوق القديم.",
        ],
        ["شكرا جزيلا، سجلت ذلك!", "حسنا. هل تريد شيئا آخر؟", "تم تأكيد الحجز {n} ليوم الجمعة."],
        ["ليلى", "بيروت", "حساسية", "أبدا"],
    ),
}  # fmt: skip
LANGUAGES = pytest.mark.parametrize("language", TALK)


def conversation(language):
    """Questions and answers with dates, each sentence with another number."""
    said, answers, _ = TALK[language]
    for turn in range(TURNS):
        when = f"2023-05-{1 + turn // 4:02}T09:{turn % 4 * 10:02}:00Z"
        text = f"{said[turn % 4].format(n=turn + 11)} {said[(turn + 2) % 4].format(n=turn + 31)}"
        yield [
            {"role": "user", "parts": [{"type": "text", "text": text}], "created_at": when},
            {
                "role": "assistant",
                "parts": [{"type": "text", "text": answers[turn % 3].format(n=turn)}],
                "created_at": when,
            },
        ]


def replay(memory, language):
    """As an agent would: a step, the work that it makes due, a context; all observed at the end. What was sent."""
    sent: list[str] = []
    for messages in conversation(language):
        if memory.append(language, messages, resource=RESOURCE, format="om", end_of_turn=True).jobs:
            work_off(memory.services)
        memory.context(language, resource=RESOURCE)
        sent.extend(message["parts"][0]["text"] for message in messages)
    while memory.observe(language, resource=RESOURCE)["job"] is not None:
        work_off(memory.services)
    memory.activate(language, resource=RESOURCE)
    return sent


@LANGUAGES
def test_a_conversation_is_kept_whole_counted_exactly_and_noted_in_its_own_words(services_with, language):
    memory = Memory(services_with(OPTIONS))
    sent = replay(memory, language)
    found = check_coverage(memory.services, "default", language, RESOURCE)
    assert found.holds, found
    assert (found.uncovered_messages, found.doubly_covered_messages) == (0, 0)
    assert found.chunks >= 3

    stored = memory.messages(language, resource=RESOURCE, limit=200)
    encode = load_encoding().encode_ordinary
    assert [text_of(message.parts) for message in stored] == sent
    assert [message.tokens for message in stored] == [MESSAGE_OVERHEAD + len(encode(text)) for text in sent]

    chunks = memory.observations(language, resource=RESOURCE, state="all", limit=200).items
    notes = "\n".join(chunk["text"] for chunk in chunks)
    assert [fact for fact in TALK[language][2] if fact not in notes] == []
    assert [word for word in FRAME.sub(" ", notes).split() if word not in " ".join(sent)] == []
    assert 3 * COUNTER.count_text(notes) < sum(message.tokens for message in stored)
    assert {"Date: May 1, 2023", "Date: May 10, 2023"} <= set(notes.splitlines())


@LANGUAGES
def test_a_long_text_is_counted_within_the_stated_error(language):
    text = " ".join(message["parts"][0]["text"] for turn in conversation(language) for message in turn) * 6
    exact = len(load_encoding().encode_ordinary(text))

    assert len(text) > 2 * PIECE
    assert abs(COUNTER.count_text(text) - exact) <= max(1, LONG_TEXT_ERROR * exact)
