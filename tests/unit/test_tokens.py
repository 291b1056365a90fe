"""Token counts are exact for words, follow the providers' rules for the rest, and never take long."""

from __future__ import annotations

import base64
import statistics
import struct
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from om_core.domain.message import Data, File, Image, Message, Reasoning, Role, Text, ToolCall, ToolResult
from om_core.tokens import MESSAGE_OVERHEAD, TiktokenCounter, load_encoding, pieces

COUNTER = TiktokenCounter()
LONG_BASE64 = base64.b64encode(bytes(range(256)) * 40).decode()


def count(*parts, model=None):
    return COUNTER.count_message(Message(role=Role.USER, parts=parts), model=model) - MESSAGE_OVERHEAD


def png(width: int, height: int, size: int = 3000) -> str:
    raw = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    return base64.b64encode(raw + bytes(size)).decode()


def jpeg(width: int, height: int) -> str:
    app = b"\xff\xe0" + struct.pack(">H", 5002) + bytes(5000)
    frame = b"\xff\xc0" + struct.pack(">HBHH", 17, 8, height, width)
    return base64.b64encode(b"\xff\xd8" + app + frame + bytes(20)).decode()


@pytest.mark.conforms("9.1")
@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("hello", 1), ("hello world", 2), ("日本語", 2), (" " * 79, 1)])
def test_text_is_counted_with_the_o200k_vocabulary(text, tokens):
    assert COUNTER.count_text(text) == tokens


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_any_text_has_a_count_and_short_texts_an_exact_one(text):
    assert COUNTER.count_text(text) == len(load_encoding().encode_ordinary(text))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["word ", "\n\n", " " * 3000, "a" * 5000, "é漢 ", "\t x "]), max_size=12).map("".join))
def test_pieces_join_to_the_text_and_are_short(text):
    parts = list(pieces(text))
    assert "".join(parts) == text
    assert all(len(piece) <= 4096 for piece in parts)


def test_cutting_into_pieces_does_not_change_the_count_of_prose():
    text = "The quick brown fox, aged 7, jumps over the lazy dog.\n\n  Again and again. " * 500
    assert COUNTER.count_text(text) == len(load_encoding().encode_ordinary(text))


@pytest.mark.parametrize("run", [" ", "a", "\n", "!", "漢", "😀", " \n", "a1"])
def test_time_grows_with_the_length_of_a_run_and_no_faster(run):
    def seconds(length: int) -> float:
        text = run * (length // len(run))
        times = []
        for _ in range(3):
            start = time.thread_time()
            COUNTER.count_text(text)
            times.append(time.thread_time() - start)
        return min(times)

    COUNTER.count_text("warm")
    assert seconds(345_000) < 60 * seconds(34_500)


def test_a_message_of_120_tokens_counts_in_well_under_100_microseconds():
    message = Message(role=Role.USER, parts=(Text(text="The quick brown fox jumps over the lazy dog again. " * 11),))
    assert 100 < COUNTER.count_message(message) < 140
    times = []
    for _ in range(300):
        start = time.thread_time()
        COUNTER.count_message(message)
        times.append(time.thread_time() - start)
    assert statistics.median(times) < 100e-6


@pytest.mark.conforms("9.2")
def test_a_message_costs_four_tokens_and_its_parts():
    assert COUNTER.count_message(Message(role=Role.USER, parts=())) == 4
    assert COUNTER.count_message(Message(role=Role.USER, parts=(Text(text="hello"), Text(text="world")))) == 6


@pytest.mark.conforms("9.2")
@pytest.mark.parametrize(
    ("part", "same_as"),
    [
        (ToolCall(call_id="c", name="search", args={"q": "x", "n": [1, 2]}), 'search{"q":"x","n":[1,2]}'),
        (ToolCall(call_id="c", name="search", args='{"q"'), 'search{"q"'),
        (ToolCall(call_id="c", name="search"), "search"),
        (ToolResult(call_id="c", result="some words"), "some words"),
        (ToolResult(call_id="c", result={"a": "ü"}), '{"a":"ü"}'),
        (ToolResult(call_id="c", result="long " * 99, model_result="short"), "short"),
        (ToolResult(call_id="c", result=None), ""),
    ],
)
def test_calls_and_results_cost_what_the_model_reads(part, same_as):
    assert count(part) == COUNTER.count_text(same_as)


@pytest.mark.conforms("9.2")
@pytest.mark.report("L05")
@pytest.mark.parametrize(
    "part", [Reasoning(text="many words here"), Reasoning(), Data(data_type="data-x", data={"many": "words"})]
)
def test_reasoning_and_data_cost_nothing(part):
    assert count(part) == 0


K = 1024
NO_COUNTS: list[Any] = [-7, float("nan"), float("inf"), True, "12"]
GEMINI_3 = [("low", 280), ("medium", 560), ("high", 1120), ("ultra_high", 2240), ("HIGH", 1120), ("odd", 1120)]


@pytest.mark.conforms("9.3")
@pytest.mark.report("L01")
@pytest.mark.parametrize(
    ("image", "model", "tokens"),
    [
        (Image(url="https://x/a.png"), "openai/gpt-4o", 85),
        (Image(url="https://x/a.png"), None, 85),
        (Image(url="u", width=K, height=K), "openai/gpt-4o", 765),
        (Image(url="u", width=K, height=K), "gpt-5-mini", 630),
        (Image(url="u", width=K, height=K), "openai/gpt-4o-mini", 25501),
        (Image(url="u", width=K, height=K), "o3", 675),
        (Image(url="u", width=K, height=K, detail="low"), "gpt-4o", 85),
        (Image(url="u", width=500, height=500), "gpt-4o", 85),
        (Image(url="u", detail="high"), "gpt-4o", 765),
        (Image(data=png(K, K)), "gpt-4o", 765),
        (Image(url=f"data:image/png;base64,{png(K, K)}"), "gpt-4o", 765),
        (Image(data=jpeg(K, K)), "gpt-4o", 765),
        (Image(data="A" * 2_000_000), "gpt-4o", 85 + 4 * 170),
        (Image(url="u"), "google/gemini-2.5-flash", 258),
        (Image(url="u", width=K, height=K), "gemini/gemini-2.5-flash", 1032),
        (Image(url="u", width=4000, height=3000), "google/gemini-2.5-pro", 6192),
        (Image(url="u"), "google/gemini-3-pro", 1120),
        (Image(url="u", detail="low"), "google/gemini-3-pro", 280),
        (Image(url="u"), "anthropic/claude-sonnet-4", 1600),
        (Image(url="u", width=512, height=512), "claude-sonnet-4", 350),
        (Image(url="u", width=K, height=K), "claude-sonnet-4", 1399),
        (Image(url="u", width=4000, height=3000), "bedrock/anthropic.claude-3", 2459),
        (Image(data="A" * 4000), "claude-3", 341),
        (Image(data="not base64 !"), "claude-3", 341),
        # by tiles: scaled to 2048, then to 768 on the short side
        (Image(url="u", width=2048, height=4096), "gpt-4o", 85 + 6 * 170),
        (Image(url="u", width=4096, height=512), "gpt-4o", 85 + 4 * 170),
        (Image(url="u", width=769, height=10), "gpt-4o", 85 + 2 * 170),
        (Image(url="u", width=768, height=768), "gpt-4o", 85),
        (Image(url="u", width=512, height=512, detail="high"), "gpt-4o", 85 + 170),
        (Image(url="u", width=K, height=K), "computer-use-preview", 65 + 4 * 129),
        (Image(url="u", width=K, height=K), "azure/o1", 75 + 4 * 150),
        (Image(url="u", detail="high"), "gpt-4o-mini", 2833 + 5667),
        # by bytes, where no size is known: a third more as base64
        (Image(data="A" * (512 * K * 4 // 3), detail="high"), "gpt-4o", 85 + 170),
        (Image(data="A" * (600 * K * 4 // 3), detail="high"), "gpt-4o", 85 + 4 * 170),
        (Image(data="A" * (3 * K * K * 4 // 3), detail="high"), "gpt-4o", 85 + 6 * 170),
        (Image(data="A" * (5 * K * K * 4 // 3), detail="high"), "gpt-4o", 85 + 8 * 170),
        (Image(data="A" * (600 * K * 4 // 3)), "gpt-4o", 85),
        (Image(data="A" * (600 * K * 4 // 3)), "claude-3", 1366),
        (Image(data="A" * (3 * K * K * 4 // 3)), "claude-3", 2048),
        (Image(data="A" * (5 * K * K * 4 // 3)), "claude-3", 2731),
        # by detail, as the part or its provider's options say
        *[(Image(url="u", detail=detail), "google/gemini-3-pro", tokens) for detail, tokens in GEMINI_3],
        (Image(url="u", provider_metadata={"google": {"mediaResolution": "MEDIA_RESOLUTION_MEDIUM"}}), "gemini-3", 560),
        (Image(url="u", provider_metadata={"openai": {"imageDetail": "high"}}), "gpt-4o", 765),
        (Image(url="u", provider_metadata={"openai": {"imageDetail": "high"}}), "gemini-3", 1120),
        (Image(url="u", detail="low", provider_metadata={"openai": {"imageDetail": "high"}}), "gpt-4o", 85),
        # what the caller counted, if that is a count
        (Image(url="u", width=K, height=K, token_estimate=0), "gpt-4o", 0),
        (Image(data=png(K, K), token_estimate=1234), "claude-3", 1234),
        *[(Image(url="u", width=K, height=K, token_estimate=value), "gpt-4o", 765) for value in NO_COUNTS],
        # sizes that no picture has
        (Image(url="u", width=0, height=-3), "claude-3", 1),
        (Image(url="u", width=10**400, height=1), "claude-3", 1),
        (Image(url="u", width=10**400, height=10**400), "gemini-2.5-flash", 258 * 86 * 86),
    ],
)
def test_images_cost_what_their_provider_charges(image, model, tokens):
    assert count(image, model=model) == tokens


PDF = base64.b64encode(bytes(60_000)).decode()


@pytest.mark.conforms("9.4")
@pytest.mark.report("L03")
@pytest.mark.parametrize(
    ("file", "model", "tokens"),
    [
        (File(data=PDF, mime_type="application/pdf"), "gpt-4o", 15_000),
        (File(data=PDF, mime_type="application/pdf"), "google/gemini-2.5-flash", 3_000),
        (File(data=PDF, filename="a.PDF"), "claude-sonnet-4", 20_000),
        (File(data=base64.b64encode(bytes(3000)).decode(), mime_type="text/plain"), "gpt-4o", 750),
        (File(data=PDF, mime_type="application/pdf", token_estimate=7), "gpt-4o", 7),
        (File(data="", mime_type="text/plain"), "gpt-4o", 1),
        (File(data="AAAA", mime_type="application/pdf"), "gpt-4o", 500),
        (File(data="AAAA", mime_type="application/pdf"), "google/gemini-2.5-flash", 258),
        (File(data="AAAA", mime_type="application/pdf"), "claude-sonnet-4", 1_500),
        (File(data=base64.b64encode(bytes(3_000_000)).decode(), mime_type="application/pdf"), "gpt-4o", 750_000),
        (File(url=f"data:application/pdf;base64,{PDF}", mime_type="application/pdf"), "gpt-4o", 15_000),
        (File(data=PDF, mime_type="audio/wav"), "gpt-4o", 30),
        (File(url="https://e.org/a.pdf", token_estimate=9_000), "gpt-4o", 9_000),
        (File(data=PDF, mime_type="application/pdf", token_estimate=0), "gpt-4o", 0),
        *[(File(data=PDF, mime_type="application/pdf", token_estimate=value), "gpt-4o", 15_000) for value in NO_COUNTS],
    ],
)
def test_files_cost_by_size_unless_the_caller_counted(file, model, tokens):
    assert count(file, model=model) == tokens


@pytest.mark.conforms("9.4")
@pytest.mark.report("L03")
def test_a_file_that_is_only_referred_to_costs_a_few_words():
    assert 5 < count(File(url="https://example.com/report.pdf", mime_type="application/pdf")) < 60


@pytest.mark.conforms("9.3")
@pytest.mark.report("L01")
@pytest.mark.parametrize(
    "result",
    [
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": LONG_BASE64}}],
        [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{LONG_BASE64}"}}],
        [{"type": "input_image", "image_url": f"data:image/png;base64,{LONG_BASE64}"}],
        [{"type": "image", "data": LONG_BASE64, "mimeType": "image/png"}],
        {"screenshot": f"data:image/png;base64,{LONG_BASE64}"},
        {"page": {"image_observation": {"content": png(10, 10)}}},
        {"out": [{"data": LONG_BASE64, "mediaType": "image/jpeg"}]},
        f"before data:image/png;base64,{LONG_BASE64} after",
        png(10, 10),
    ],
)
def test_base64_inside_a_result_counts_as_an_image_and_not_as_words(result):
    as_text = len(LONG_BASE64) // 4
    assert 85 <= count(ToolResult(call_id="c", result=result), model="gpt-4o") < 85 + 60 < as_text
    assert 85 <= count(ToolCall(call_id="c", name="n", args=result), model="gpt-4o") < 85 + 60


@pytest.mark.conforms("9.3")
@pytest.mark.report("L01")
def test_a_data_uri_in_a_message_is_no_text_either():
    assert count(Text(text=f"look: data:image/png;base64,{LONG_BASE64}")) < 200


def test_long_words_that_are_no_attachment_stay_text():
    assert count(ToolResult(call_id="c", result={"data": "a" * 4000})) == COUNTER.count_text(
        '{"data":"' + "a" * 4000 + '"}'
    )


@pytest.mark.conforms("11.45")
@pytest.mark.report("D08")
@pytest.mark.parametrize("strange", [{"a", "b"}, object(), {"x": object()}, float("nan"), {1: 2}])
def test_a_count_is_never_negative_and_never_raises(strange):
    for part in (ToolResult(call_id="c", result=strange), ToolCall(call_id="c", name="n", args=strange), strange):
        assert COUNTER.count_part(part) >= 0


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("ab é漢😀\u0301\u200d👩🏽 \n\tz"), max_size=120), st.integers(0, 40))
def test_a_cut_text_is_the_longest_prefix_within_the_limit(text, limit):
    cut = COUNTER.truncate(text, limit)
    assert text.startswith(cut)
    assert COUNTER.count_text(cut) <= limit
    if cut != text:
        whole = text[: len(cut) + 1]
        while len(whole) < len(text) and (
            unicodedata.combining(text[len(whole)]) or text[len(whole)] in "\u200d🏽" or whole[-1] == "\u200d"
        ):
            whole += text[len(whole)]
        assert COUNTER.count_text(whole) > limit


@pytest.mark.report("M02")
@pytest.mark.parametrize("cluster", ["e\u0301", "👍🏽", "👩\u200d💻", "❤\ufe0f", "ก\u0e38"])
def test_a_cut_never_splits_a_combined_character(cluster):
    text = cluster * 30
    for limit in range(60):
        cut = COUNTER.truncate(text, limit)
        assert len(cut) % len(cluster) == 0


def test_cutting_is_fast_on_a_megabyte_and_exact_beyond_a_piece():
    text = "word and another, " * 60_000
    for limit in (0, 1, 5_000, 100_000):
        cut = COUNTER.truncate(text, limit)
        assert COUNTER.count_text(cut) == limit
    assert COUNTER.truncate(text, 10**9) == text
    assert COUNTER.truncate(" " * 345_000, 10).strip() == ""


@pytest.mark.report("L11")
def test_all_counters_of_a_process_share_one_vocabulary():
    assert len({id(TiktokenCounter()._encoding()) for _ in range(500)}) == 1


SCRIPTS = {
    "Latin": "The invoice goes to the Berlin office on Friday. ",
    "French": "Déjà vu : l’été dernier, nous étions à Besançon. ",
    "German": "Größere Straßenüberführungen übersäen München. ",
    "Polish": "Zażółć gęślą jaźń, źdźbło trawy. ",
    "Vietnamese": "Chúng tôi sẽ gặp nhau vào thứ sáu. ",
    "Cyrillic": "Счёт отправят в берлинский офис в пятницу. ",
    "Greek": "Το τιμολόγιο πηγαίνει στο γραφείο του Βερολίνου. ",
    "Hebrew": "החשבונית תישלח למשרד בברלין ביום שישי. ",
    "Arabic": "سترسل الفاتورة إلى مكتب برلين يوم الجمعة. ",
    "Hindi": "चालान शुक्रवार को बर्लिन कार्यालय जाएगा। ",
    "Thai": "ใบแจ้งหนี้จะส่งไปยังสำนักงานเบอร์ลิน",
    "Amharic": "ደረሰኙ ዓርብ ወደ በርሊን ቢሮ ይሄዳል። ",
    "Georgian": "ინვოისი პარასკევს ბერლინის ოფისში წავა. ",
    "Chinese": "发票将于星期五送到柏林办事处。",
    "Japanese": "請求書は金曜日にベルリン事務所へ送られます。",
    "Korean": "송장은 금요일에 베를린 사무실로 갑니다. ",
    "emoji": "👩🏽‍💻🚀 ❤️ 🇫🇷 ",
    "code": "for (int i = 0; i < n; ++i) { total += prices[i] * 1.19; }\n",
}


@pytest.mark.conforms("9.1", "11.45")
@pytest.mark.parametrize("script", SCRIPTS)
def test_long_texts_of_any_script_are_counted_within_a_hundredth(script):
    text = SCRIPTS[script] * (60_000 // len(SCRIPTS[script]))
    exact = len(load_encoding().encode_ordinary(text))

    assert abs(COUNTER.count_text(text) - exact) <= exact / 100


def test_an_author_costs_the_name():
    named = COUNTER.count_message(Message(role=Role.USER, parts=(Text(text="hello"),), author="Caroline"))

    assert named == MESSAGE_OVERHEAD + 1 + COUNTER.count_text("Caroline") + 1


@pytest.mark.conforms("9.2")
@pytest.mark.parametrize(
    ("part", "counted"),
    [
        (Image(url="u", width=K, height=K, token_estimate=3), 3),
        (File(url="https://e.org/a.pdf", token_estimate=9_000), 9_000),
        (ToolResult(call_id="c", result="long " * 99, model_result=[{"type": "image", "data": png(K, K)}]), 770),
        (ToolResult(call_id="c", result=[{"type": "image", "data": png(K, K)}], model_result="a red square"), 3),
    ],
)
def test_results_and_estimates_count_as_the_actor_gets_them(part, counted):
    assert count(part, model="gpt-4o") == counted


@pytest.mark.report("L02")
def test_three_screenshots_in_a_result_count_as_three_images():
    big = base64.b64encode(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", K, K) + bytes(600_000)).decode()
    pages = {"pages": [{"shot": {"data": big, "mime_type": "image/png"}} for _ in range(3)]}

    assert 3 * 765 < count(ToolResult(call_id="c", result=pages), model="gpt-4o") < 3 * 765 + 80
