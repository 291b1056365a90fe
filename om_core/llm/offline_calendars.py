"""How languages name days from where the speaker stands: yesterday, last Friday, in two weeks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True)
class Calendar:
    """Words of one language.

    `words` are days from today; `units` name a day, week, weekend, month, year or weekday by its English name; `past`
    and `future` stand before a unit, or after it with `after`; `ago` and `ahead` hold {n} and {u}. `by_week`: "last
    Friday" is the one of last week. `blank` is what stands between words. `replaces`: the day takes the words' place
    instead of following them. `unless` one of these words stands before: it feels like yesterday.
    """

    words: Mapping[str, int]
    units: Mapping[str, str]
    past: tuple[str, ...]
    future: tuple[str, ...]
    ago: str
    ahead: str
    numbers: Mapping[str, int] = field(default_factory=dict)
    years: Mapping[str, int] = field(default_factory=dict)
    after: bool = False
    by_week: bool = False
    blank: str = " "
    replaces: bool = False
    unless: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Groups: word, year; way and what; n1 and u1 (ago), n2 and u2 (ahead)."""
        way = f"(?P<way>{_alternatives((*self.past, *self.future))})"
        what = f"(?P<what>{_alternatives(self.units)})"
        named = f"{what}{self.blank}{way}" if self.after else f"{way}{self.blank}{what}"
        number = rf"\d{{1,3}}|{_alternatives(self.numbers)}" if self.numbers else r"\d{1,3}"
        ago, ahead = (
            text.replace("{n}", f"(?P<n{index}>{number})").replace("{u}", f"(?P<u{index}>{_alternatives(self.units)})")
            for index, text in ((1, self.ago), (2, self.ahead))
        )
        choices = [f"(?P<word>{_alternatives(self.words)})", named, ago, ahead]
        if self.years:
            choices.append(f"(?P<year>{_alternatives(self.years)})")
        edge = r"\b" if self.blank else ""
        unless = "".join(f"(?<!{re.escape(word)} )" for word in self.unless)
        return re.compile(f"{edge}{unless}(?:{'|'.join(choices)}){edge}", re.IGNORECASE)


def _alternatives(words: Mapping[str, object] | tuple[str, ...]) -> str:
    """The words, longest first, as an alternative of a pattern."""
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


def _units(text: str) -> dict[str, str]:
    """`day: jour jours` lines as a mapping of each word to its unit."""
    found: dict[str, str] = {}
    for line in text.strip().splitlines():
        unit, _, names = line.strip().partition(": ")
        found.update((name.replace("_", " "), unit) for name in names.split())
    return found


_ENGLISH_UNITS: Final = "\n".join(
    [
        *(f"{unit}: {unit} {unit}s" for unit in ("day", "week", "weekend", "month", "year")),
        *(f"{day}: {day} {day[:3]}" for day in WEEKDAYS),
        "tuesday: tues",
        "thursday: thurs",
    ]
)
CALENDARS: Final[dict[str, Calendar]] = {
    "en": Calendar(
        words={
            "yesterday": -1, "last night": -1, "tomorrow": 1, "the day before yesterday": -2,
            "the day after tomorrow": 2,
        },
        units=_units(_ENGLISH_UNITS),
        past=("last", "this past", "past"),
        future=("next", "this coming"),
        ago="{n} {u} ago",
        ahead="{n} {u} from now",
        numbers={
            "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
            "nine": 9, "ten": 10, "a couple of": 2,
        },
        replaces=True,
        unless=("like", "like the", "like just", "like only", "just like"),
    ),
    "fr": Calendar(
        words={"hier": -1, "avant-hier": -2, "demain": 1, "après-demain": 2, "hier soir": -1},
        units=_units("""
            day: jour jours
            week: semaine semaines
            weekend: week-end weekend
            month: mois
            year: année an ans
            monday: lundi
            tuesday: mardi
            wednesday: mercredi
            thursday: jeudi
            friday: vendredi
            saturday: samedi
            sunday: dimanche
        """),
        past=("dernier", "dernière", "passé", "passée"),
        future=("prochain", "prochaine"),
        ago="il y a {n} {u}",
        ahead="dans {n} {u}",
        numbers={"un": 1, "une": 1, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "six": 6},
        after=True,
    ),
    "de": Calendar(
        words={"gestern": -1, "vorgestern": -2, "gestern abend": -1, "übermorgen": 2},
        units=_units("""
            day: tag tage tagen
            week: woche wochen
            weekend: wochenende
            month: monat monate monaten
            year: jahr jahre jahren
            monday: montag
            tuesday: dienstag
            wednesday: mittwoch
            thursday: donnerstag
            friday: freitag
            saturday: samstag
            sunday: sonntag
        """),
        past=("letzte", "letzten", "letztes", "letzter", "letztem", "vergangene", "vergangenen"),
        future=("nächste", "nächsten", "nächstes", "nächster", "kommende", "kommenden"),
        ago="vor {n} {u}",
        ahead="in {n} {u}",
        numbers={"einem": 1, "einer": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6},
    ),
    "es": Calendar(
        words={"ayer": -1, "anteayer": -2, "anoche": -1, "pasado mañana": 2},
        units=_units("""
            day: día días
            week: semana semanas
            weekend: fin_de_semana
            month: mes meses
            year: año años
            monday: lunes
            tuesday: martes
            wednesday: miércoles
            thursday: jueves
            friday: viernes
            saturday: sábado
            sunday: domingo
        """),
        past=("pasado", "pasada"),
        future=("que viene", "próximo", "próxima"),
        ago="hace {n} {u}",
        ahead="dentro de {n} {u}",
        numbers={"un": 1, "una": 1, "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6},
        after=True,
    ),
    "zh": Calendar(
        words={"昨天": -1, "前天": -2, "明天": 1, "后天": 2, "昨晚": -1},
        units=_units("""
            day: 天
            week: 周 星期
            weekend: 周末
            month: 月 个月
            year: 年
            monday: 周一 星期一
            tuesday: 周二 星期二
            wednesday: 周三 星期三
            thursday: 周四 星期四
            friday: 周五 星期五
            saturday: 周六 星期六
            sunday: 周日 周天 星期日 星期天
        """),
        past=("上", "上个"),
        future=("下", "下个"),
        ago="{n}{u}前",
        ahead="{n}{u}后",
        numbers={"一": 1, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10},
        years={"去年": -1, "明年": 1, "前年": -2},
        by_week=True,
        blank="",
    ),
    "ar": Calendar(
        words={"أمس": -1, "البارحة": -1, "غدا": 1, "غدًا": 1},
        units=_units("""
            day: يوم أيام
            week: الأسبوع أسبوع أسابيع
            month: الشهر شهر أشهر
            year: السنة العام سنة سنوات
            monday: الاثنين الإثنين
            tuesday: الثلاثاء
            wednesday: الأربعاء
            thursday: الخميس
            friday: الجمعة
            saturday: السبت
            sunday: الأحد
        """),
        past=("الماضي", "الماضية"),
        future=("القادم", "القادمة", "المقبل", "المقبلة"),
        ago="قبل {n} {u}",
        ahead="بعد {n} {u}",
        after=True,
    ),
    "he": Calendar(
        words={"אתמול": -1, "שלשום": -2, "מחר": 1, "מחרתיים": 2},
        units=_units("""
            day: יום ימים
            week: שבוע בשבוע שבועות
            month: חודש בחודש חודשים
            year: שנה בשנה שנים
            monday: שני
            tuesday: שלישי
            wednesday: רביעי
            thursday: חמישי
            friday: שישי
            saturday: שבת
            sunday: ראשון
        """),
        past=("שעבר", "שעברה", "האחרון"),
        future=("הבא", "הבאה", "הקרוב"),
        ago="לפני {n} {u}",
        ahead="בעוד {n} {u}",
        numbers={"שני": 2, "שלושה": 3, "שלוש": 3},
        after=True,
    ),
}  # fmt: skip
