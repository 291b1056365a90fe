"""Relative days in the offline model's notes: worked out from the day on which they were said, in each language."""

from datetime import date

import pytest

from om_core.llm.offline_dates import has_day, with_days

SAID = date(2023, 5, 8)  # a Monday

ENGLISH = [
    ("I went yesterday", "I went May 7"),
    ("I went last night", "I went May 7"),
    ("the day after tomorrow we move", "May 10 we move"),
    ("since last Friday", "since Friday May 5"),
    ("Last Monday was long", "Monday May 1 was long"),
    ("next Monday we meet", "Monday May 15 we meet"),
    ("this coming Sunday", "Sunday May 14"),
    ("last weekend", "weekend of May 6"),
    ("last week and next week", "week of May 1 and week of May 15"),
    ("two weeks ago", "week of April 24"),
    ("10 days ago", "April 28"),
    ("a day ago", "May 7"),
    ("last year", "2022"),
    ("eight months and then next month", "eight months and then June 2023"),
    ("a couple of months ago", "March 2023"),
    ("five months ago", "December 2022"),
    ("200 days ago", "October 20, 2022"),
    ("999 years from now", "3022"),
    ("today", "today"),
    ("it feels like yesterday", "it feels like yesterday"),
    ("it feels like just yesterday", "it feels like just yesterday"),
    ("I like Monday, next Tues works", "I like Monday, Tuesday May 9 works"),
    ("Last Fri it rained", "Friday May 5 it rained"),
    ("the lastweek file", "the lastweek file"),
    ("2 Fridays ago", "2 Fridays ago"),
]
OTHERS = [
    ("fr", "j'y suis allée hier soir", "j'y suis allée hier soir (May 7)"),
    ("fr", "vendredi dernier", "vendredi dernier (Friday May 5)"),
    ("fr", "la semaine prochaine", "la semaine prochaine (week of May 15)"),
    ("fr", "il y a deux mois", "il y a deux mois (March 2023)"),
    ("de", "gestern", "gestern (May 7)"),
    ("de", "letzten Freitag", "letzten Freitag (Friday May 5)"),
    ("de", "vor zwei Wochen", "vor zwei Wochen (week of April 24)"),
    ("de", "nächsten Monat", "nächsten Monat (June 2023)"),
    ("es", "ayer fui al cine", "ayer (May 7) fui al cine"),
    ("es", "el viernes pasado", "el viernes pasado (Friday May 5)"),
    ("es", "el año que viene", "el año que viene (2024)"),
    ("es", "hace 3 días", "hace 3 días (May 5)"),
    ("zh", "我昨天去了", "我昨天 (May 7)去了"),
    ("zh", "上周五见面", "上周五 (Friday May 5)见面"),
    ("zh", "下周一出发", "下周一 (Monday May 15)出发"),
    ("zh", "去年结婚", "去年 (2022)结婚"),
    ("zh", "三个月前", "三个月前 (February 2023)"),
    ("ar", "ذهبت أمس إلى السوق", "ذهبت أمس (May 7) إلى السوق"),
    ("ar", "الأسبوع القادم", "الأسبوع القادم (week of May 15)"),
    ("he", "אתמול הלכתי", "אתמול (May 7) הלכתי"),
    ("he", "בשבוע שעבר", "בשבוע שעבר (week of May 1)"),
]


@pytest.mark.parametrize(("sentence", "expected"), ENGLISH)
def test_english_days_take_the_place_of_their_words(sentence, expected):
    assert with_days(sentence, SAID) == expected
    assert has_day(sentence) == (sentence != expected)


@pytest.mark.parametrize(("language", "sentence", "expected"), OTHERS)
def test_in_other_languages_the_day_follows_the_words(language, sentence, expected):
    assert with_days(sentence, SAID, language) == expected
    assert has_day(sentence, language)


def test_days_outside_the_calendar_stay_as_they_were_said():
    assert with_days("999 years ago", date(900, 1, 1)) == "999 years ago"
    assert with_days("999 months from now", date(9990, 1, 1)) == "999 months from now"
    assert with_days("next week", date.max) == "next week"


def test_a_language_without_a_calendar_is_left_alone():
    assert with_days("ieri sono andato", SAID, "it") == "ieri sono andato"
    assert not has_day("yesterday", "")
