"""The offline model in several languages: it tells them apart, keeps facts, drops what says nothing."""

import pytest

from om_core.domain.policy import OFFLINE_MODEL
from om_core.llm.offline import OfflineModel
from om_core.llm.offline_languages import FRENCH, language_of
from om_core.llm.offline_text import sentences, terse
from om_core.ports import ModelRequest, ObserverMaterial
from om_core.prompts.notes import note_lines
from om_core.prompts.parse import parse_observer
from om_core.tokens import TiktokenCounter
from tests.unit.prompt_samples import user

COUNT = TiktokenCounter().count_text
MODEL = OfflineModel(count_tokens=COUNT)


def notes_of(texts, target):
    messages = tuple(user(number, text) for number, text in enumerate(texts, 1))
    material = ObserverMaterial(messages=messages, target_tokens=target)
    request = ModelRequest(phase="observe", model=OFFLINE_MODEL, prompt=(), material=material)
    output = parse_observer(MODEL.complete(request, timeout_s=1).text)
    assert output.outcome == "valid", output.reason
    return output.notes


CHAT = {
    "en": (
        ["My sister Eleanor moved to Porto yesterday with 3 cats.", "I am allergic to peanuts and never eat them."],
        ["Wow, that sounds great, thank you!", "How are you?", "You are so kind, good luck!"],
        ["Eleanor", "Porto", "May 7", "3 cats", "allergic", "never"],
    ),
    "fr": (
        ["Ma sœur Éléonore a déménagé à Lyon hier avec 3 chats.", "Je suis allergique aux arachides, je n'en mange jamais."],
        ["Merci beaucoup, c'est super gentil !", "Comment vas-tu ?", "Bonne chance à toi, bravo !"],
        ["Éléonore", "Lyon", "May 7", "3 chats", "allergique", "jamais"],
    ),
    "de": (
        ["Meine Schwester Eleonore ist gestern mit 3 Katzen nach Köln gezogen.", "Ich bin allergisch gegen Erdnüsse und esse sie nie."],
        ["Vielen Dank, das klingt toll!", "Wie geht es dir heute?", "Viel Glück dir und deinen Leuten!"],
        ["Eleonore", "Köln", "May 7", "3 Katzen", "allergisch", "nie"],
    ),
    "es": (
        ["Mi hermana Leonor se mudó ayer a Sevilla con 3 gatos.", "Soy alérgica a los cacahuetes y nunca los como."],
        ["¡Muchas gracias, qué bien suena!", "¿Cómo estás tú?", "¡Buena suerte, felicidades!"],
        ["Leonor", "Sevilla", "May 7", "3 gatos", "alérgica", "nunca"],
    ),
    "zh": (
        ["我姐姐昨天带着3只猫搬到了上海。", "我对花生过敏,从来不吃。"],
        ["谢谢你!", "你好吗?", "太好了,恭喜你!"],
        ["姐姐", "May 7", "3只猫", "上海", "花生过敏", "不吃"],
    ),
    "ar": (
        ["انتقلت أختي ليلى أمس إلى بيروت مع 3 قطط.", "عندي حساسية من الفول السوداني ولا آكله أبدا."],
        ["شكرا جزيلا لك!", "كيف حالك؟", "مبروك عليك!"],
        ["ليلى", "بيروت", "May 7", "3 قطط", "حساسية", "ولا آكله"],
    ),
    "he": (
        ["אחותי נועה עברה אתמול לחיפה עם 3 חתולים.", "אני אלרגית לבוטנים ולעולם לא אוכלת אותם."],
        ["תודה רבה לך!", "מה שלומך?", "בהצלחה, מזל טוב!"],
        ["נועה", "לחיפה", "May 7", "3 חתולים", "אלרגית", "לא אוכלת"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", CHAT)
def test_facts_are_kept_and_small_talk_is_not(code):
    facts, talk, kept = CHAT[code]
    notes = notes_of([*talk, *facts], 90)

    assert [word for word in kept if word not in notes] == []
    assert len(note_lines(notes)) == 1
    assert [text for text in talk if text.strip("!?？؟. ¡¿") in notes] == []


@pytest.mark.parametrize("code", CHAT)
def test_a_language_is_told_by_its_script_and_its_words(code):
    facts, talk, _ = CHAT[code]

    assert language_of(" ".join([*facts, *talk])).code == code


@pytest.mark.parametrize(("text", "code"), [("", "en"), ("x = 1", "en"), ("Oui.", "en"), ("Это новая квартира.", "")])
def test_what_tells_no_language_has_the_default_or_none(text, code):
    assert language_of(text).code == code


def test_a_short_text_has_the_language_of_its_range():
    assert language_of("Oui, Lyon.", FRENCH).code == "fr"


@pytest.mark.parametrize(
    ("text", "number"),
    [("一。二！三？四；", 4), ("كيف حالك؟ أنا بخير.", 2), ("मैं ठीक हूँ। धन्यवाद।", 2), ("Да. Нет!", 2), ("no end", 1)],
)
def test_sentences_end_by_the_marks_of_their_script(text, number):
    assert len(sentences(text)) == number


def test_french_elision_is_dropped_with_its_word_and_negation_stays():
    assert terse("J'ai vu l'école, je n'aime pas ça.", FRENCH) == "vu école n'aime pas"


RIGHT_TO_LEFT = ["בית הספר \u200fשל דנה נמצא ברחוב הרצל 12, קומה 3.", "المدرسة في شارع الملك فهد رقم ١٢، الطابق ٣."]


@pytest.mark.parametrize("text", RIGHT_TO_LEFT)
def test_right_to_left_words_stay_whole_and_in_their_order(text):
    notes = notes_of([text], 80).partition("User: ")[2]
    said = [word.strip("\u200f.,،") for word in text.split()]
    kept = [word for word in said if word in notes]

    assert len(kept) >= 6
    assert [notes.index(word) for word in kept] == sorted(notes.index(word) for word in kept)


@pytest.mark.parametrize(
    "text", ["日本語の文章です。私は東京に住んでいます。", "ฉันอาศัยอยู่ในกรุงเทพฯ กับแมว 3 ตัว", "Живу в Твери с 2019 года."]
)
def test_languages_without_a_table_give_notes_by_general_means(text):
    assert len(note_lines(notes_of([text], 80))) == 1
