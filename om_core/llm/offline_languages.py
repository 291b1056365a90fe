"""What the offline model knows of languages: words a reader restores, and words that tell who a sentence is about.

Everything else it does (rarity, numbers, names, novelty) asks for no language. A text in a language without a table is
read by these means alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_NEVER: Final = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """Words, and patterns that read sentences.

    `dropped` words are left out of notes; `common` ones stay, but count little; `ornaments` are left out before another
    word that is no name. `own`: the speaker speaks of themselves. `event`: of something they did. `addressed`: of the
    listener. `polite`: how a sentence without content opens. `praise`: what marks one anywhere. `firm`: a wish or a
    decision.
    """

    code: str
    dropped: frozenset[str]
    common: frozenset[str] = frozenset()
    ornaments: frozenset[str] = frozenset()
    own: re.Pattern[str] = _NEVER
    event: re.Pattern[str] = _NEVER
    addressed: re.Pattern[str] = _NEVER
    polite: re.Pattern[str] = _NEVER
    praise: re.Pattern[str] = _NEVER
    firm: re.Pattern[str] = _NEVER
    capitals_are_names: bool = True


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _any(text: str) -> re.Pattern[str]:
    """One of the phrases as whole words; underscores stand for blanks."""
    return re.compile(rf"\b(?:{'|'.join(_phrases(text))})\b", re.IGNORECASE)


def _first(text: str) -> re.Pattern[str]:
    """One of the phrases at the start of a sentence, after an interjection at most."""
    lead = r"(?:[\w’']{1,6}[,!] )?"
    return re.compile(rf"{lead}(?:{'|'.join(_phrases(text))})\b", re.IGNORECASE)


def _part(text: str) -> re.Pattern[str]:
    """One of the phrases anywhere: for scripts without blanks, or whose words carry prefixes."""
    return re.compile("|".join(_phrases(text)))


def _phrases(text: str) -> list[str]:
    return [phrase.replace("_", " ").replace("'", "['’]") for phrase in text.split()]


_PAST_TEXT: Final = """
went got made took had saw met found bought won was did gave came began left lost built wrote read ran
"""
ENGLISH: Final = Language(
    code="en",
    dropped=_set("""
a an the of is was are were be been being am i i'm it it's its that's that this these those so and or have has had do
does did i've i'd i'll will would can could there there's here here's as than then in at on for by with about into up
out you'll we'll you're we're they're he's she's we've you've they've you'd we'd they'd he'd she'd they'll he'll she'll
it'll that'll who's what's let's me my mine myself we us our ours ourselves you your yours yourself
really just very super quite pretty totally absolutely definitely actually basically literally simply like also too even
well oh wow hey hi hello yeah yep yup yes okay ok sure please thanks thank glad haha lol hmm ah gonna gotta kinda sorta
some any
"""),
    common=_set("""
great good nice awesome amazing wonderful fantastic incredible cool lovely beautiful perfect exciting feel feels felt
feeling think thinking thought know knowing knew see seeing saw seen look looks looking looked sound sounds seem seems
guess believe mean means go going goes went come coming came make makes making made take takes taking took give gives
giving gave put keep keeps keeping kept try trying tried want wanted wants need needed needs start started starting
help helps helped use used find found thing things something anything everything stuff lot lots bit way ways kind sort
part time times day days one ones all always ever still already again back now today lately recently more most much
many other another each every few such own same whole both get gets got getting say said says tell told telling talk
talking talked ask asked able important truly especially maybe perhaps probably course honestly since because cause if
but how what why who which when where while best better big little long old people someone everyone folks guys life
work first last he she they him her his hers them their to from over through not no never
"""),
    ornaments=_set("""
great good nice awesome amazing wonderful fantastic incredible cool lovely beautiful perfect real such plus all both but
to
"""),
    own=_any("i i'm i've i'd i'll my mine me we we're we've our us"),
    event=re.compile(
        r"\b(?:i|we) (?:just |also |even |recently |finally |once )?"
        rf"(?:[a-z]{{3,}}ed|{'|'.join(_PAST_TEXT.split())})\b",
        re.IGNORECASE,
    ),
    addressed=_any("you your you're you've you'll"),
    polite=_first("""
wow thanks thank that's that_is that_sounds sounds great awesome glad hey hi cool yeah totally absolutely congrats okay
ok good_luck good_point no_problem bye cheers take_care see_you talk_to_you good_night good_morning let_me feel_free
you're_welcome is_there_anything of_course no_worries
if_you_have_(?:any|further|more|other) if_you_need_(?:any|further|more|other)
"""),
    praise=_any("""
sounds congrats congratulations proud_of_you happy_for thanks thank_you good_luck agree totally absolutely
"""),
    firm=_any(r"""
prefer want need must should shall decid\w{1,5} choose chose always never don't do_not instead because rather_than
required? favou?rite allerg\w{1,4} plan_to rule constraint
"""),
)  # fmt: skip
FRENCH: Final = Language(
    code="fr",
    dropped=_set("""
le la les l' un une des du de d' et ou où que qu' qui ce c' cet cette ces ça cela est es sont était étaient sera serait
été être suis ai as a avons avez ont avait avais y en je j' me m' moi mon ma mes nous notre nos tu te t' toi ton ta tes
vous votre vos se s' au aux à dans pour sur avec par très vraiment juste aussi bien alors donc voilà oui ouais ah oh euh
bonjour salut coucou merci super d'accord c'est j'ai il elle on
"""),
    common=_set("""
faire fait fais aller va vais allé chose choses bon bonne beau belle grand grande petit petite tout toute tous
toutes plus moins encore toujours jamais ne pas n' rien mais si comme quand quoi comment pourquoi ils elles lui leur
leurs son sa ses peut peux veux dire dit voir vu peu beaucoup trop même autre autres jour jours temps génial
"""),
    own=_any("je j'\\w+ moi m'\\w+ me mon ma mes nous notre nos"),
    addressed=_any("tu toi ton tes vous votre vos t'\\w+"),
    polite=_first("""
merci bonjour salut coucou bonsoir d'accord ok super génial oui ouais bravo félicitations désolée? avec_plaisir de_rien
bien_sûr c'est_(?:super|génial|bien|cool) bonne_(?:idée|chance|journée|soirée) à_bientôt
"""),
    praise=_any("félicitations merci bravo bonne_chance"),
    firm=_any(
        r"préfèr\w+ préfér\w+ veux voudrais dois décid\w+ choisi\w* toujours jamais allergi\w+ parce_que "
        r"plutôt favorie?"
    ),
)
GERMAN: Final = Language(
    code="de",
    dropped=_set("""
der die das den dem des ein eine einen einem einer eines und oder dass ist sind war waren bin bist sein gewesen habe
hast hat haben hatte hatten wird werden wurde würde ich mich mir mein meine meinen meinem meiner wir uns unser unsere
unseren du dich dir dein deine deinen ihr euch euer zu im in am an auf für mit von vom zum zur bei beim es so da ja
auch schon mal sehr wirklich echt ganz halt eben doch denn hallo hi danke bitte ach oh toll super okay ok
"""),
    common=_set("""
gehen ging gegangen machen mache macht gemacht kommen kam gut schön gern gerne groß klein neu ding dinge etwas alles
viel viele mehr wenig noch wieder immer nie nicht kein keine keinen nichts aber wenn wie was warum wann wer er sie ihn
ihm ihr ihre ihren sagen sagt gesagt sehen sehe gesehen tag tage zeit jetzt heute als nur man kann können will
"""),
    own=_any("ich mich mir meine? meinen meinem meiner wir uns unsere? unseren"),
    addressed=_any("du dich dir deine? deinen deinem deiner euch eure?"),
    polite=_first("""
danke vielen_dank hallo hi guten_(?:tag|morgen|abend) gern gerne toll super klasse okay ok ja genau klar wow
herzlichen_glückwunsch viel_(?:glück|erfolg|spaß) bitte tschüss das_(?:klingt|ist_(?:toll|schön|super|gut))
bis_(?:bald|dann)
"""),
    praise=_any("glückwunsch danke viel_glück viel_erfolg"),
    firm=_any(
        r"bevorzug\w+ lieber möchte will muss soll entschied\w* entschlossen gewählt immer nie niemals "
        r"allergi\w+ weil statt"
        r"lieblings\w+"
    ),
    capitals_are_names=False,
)
SPANISH: Final = Language(
    code="es",
    dropped=_set("""
el la los las un una unos unas de del y o u que qué en a al con por para es son era eran fue ser sido soy está están
estoy estaba he ha has han había hay yo me mi mis mío nosotros nos nuestro nuestra nuestros tú te ti tu tus usted
ustedes se su sus lo le les este esta esto estos estas ese esa eso muy también realmente ya pues bueno sí hola gracias
vale claro ah oh
"""),
    common=_set("""
hacer hace hago hecho hizo ir voy va fui ido cosa cosas bien buen bueno buena gran grande pequeño todo toda todos todas
más menos mucho mucha muchos poco algo nada no nunca siempre pero si como cuando dónde cómo porque él ella ellos ellas
puede puedo quiero decir dice dijo ver visto día días tiempo ahora hoy otro otra mismo genial
"""),
    own=_any(
        r"yo me mis? mío mía nosotros nosotras nos nuestr[oa]s? fui hice tengo tuve estuve soy estoy voy "
        r"compré vi quiero he"
    ),
    addressed=_any("tú te ti tus? usted ustedes vosotros vuestr[oa]s?"),
    polite=_first("""
gracias muchas_gracias hola buenos_días buenas_(?:tardes|noches) vale genial claro sí qué_(?:bien|bueno|bonito) de_nada
felicidades enhorabuena suena por_supuesto buena_(?:suerte|idea) hasta_(?:luego|pronto) perfecto
"""),
    praise=_any("gracias felicidades enhorabuena buena_suerte"),
    firm=_any(
        r"prefiero prefer\w+ quiero quisiera necesito debo decid\w+ eleg\w+ siempre nunca alérgic[oa] porque "
        r"favorit[oa]"
    ),
)
CHINESE: Final = Language(
    code="zh",
    dropped=frozenset(),
    own=_part("我 咱"),
    addressed=_part("你 您"),
    polite=re.compile("你好|您好|谢谢|多谢|好的|好啊|太好了|太棒了|哈哈|嗯|再见|没关系|不客气|恭喜|加油|早上好|晚上好"),
    praise=_part("恭喜 祝你 谢谢 加油"),
    firm=_part("喜欢 决定 过敏 想要 必须 总是 从不 不吃 更喜欢 因为 选择 打算 计划 最爱"),
)
JAPANESE: Final = Language(
    code="ja",
    dropped=frozenset(),
    own=_part("私 僕 俺 うち わたし"),
    addressed=_part("あなた 君"),
    polite=re.compile(
        "こんにちは|おはよう|こんばんは|ありがとう|はい|ええ|そうですね|すごい|いいですね|おめでとう|さようなら"
    ),
    praise=_part("おめでとう ありがとう"),
    firm=_part("好き 決め アレルギー 必ず 絶対 いつも ほしい 欲しい つもり"),
)
ARABIC: Final = Language(
    code="ar",
    dropped=_set(
        "من في على إلى عن أن إن هذا هذه ذلك تلك التي الذي الذين هو هي كان كانت قد لقد و أو ثم مع يا نعم جدا "
        "أيضا أنا نحن أنت هنا هناك"
    ),
    common=_set("شيء كل بعض يوم وقت جيد كبير صغير لا ليس لم لن ما كيف لماذا متى"),
    own=_any("أنا نحن لي لدي عندي زوجي زوجتي أختي أخي أمي أبي ابني ابنتي بيتي عملي"),
    addressed=_any("أنت لك لديك عندك أنتم"),
    polite=_first("مرحبا أهلا السلام_عليكم شكرا نعم حسنا رائع مبروك صباح_الخير مساء_الخير عفوا مع_السلامة"),
    praise=_any("مبروك شكرا"),
    firm=_any("أفضل أريد قررت قررنا يجب دائما أبدا حساسية لأن اخترت"),
)
HEBREW: Final = Language(
    code="he",
    dropped=_set(
        "של את על עם אל זה זאת זו הוא היא הם הן אני אנחנו היה הייתה היו יש גם כי או אז כן מאוד ממש רק כבר פה "
        "שם לי לנו אתה"
    ),
    common=_set("דבר כל יום זמן טוב טובה גדול קטן לא אין מה איך למה מתי עוד אבל אם"),
    own=_any("אני אנחנו שלי שלנו לי לנו אותי"),
    addressed=_any("אתה את אתם שלך לך אותך"),
    polite=_first("תודה שלום היי כן בסדר יופי מעולה איזה_יופי מזל_טוב בוקר_טוב ערב_טוב להתראות בבקשה"),
    praise=_any("מזל_טוב תודה בהצלחה"),
    firm=_any("מעדיף מעדיפה רוצה חייב חייבת החלטתי החלטנו תמיד לעולם אלרגי אלרגית בגלל בחרתי"),
)
UNSPACED: Final = (CHINESE, JAPANESE)
"""Their words are told apart by no blanks."""
_BY_WORDS: Final = (ENGLISH, FRENCH, GERMAN, SPANISH)
_UNKNOWN: Final = Language(code="", dropped=frozenset())
_LATIN: Final = re.compile(r"[a-zà-öø-ÿœ]+(?:['’][a-z]+)?")
_SCRIPTS: Final = (
    (re.compile(r"[\u3040-\u30ff]"), JAPANESE),
    (re.compile(r"[\u3400-\u9fff]"), CHINESE),
    (re.compile(r"[\u0590-\u05ff]"), HEBREW),
    (re.compile(r"[\u0600-\u06ff]"), ARABIC),
)
_SAMPLE_CHARS: Final = 2_000
_TELLING: Final = 2


def language_of(text: str, default: Language = ENGLISH) -> Language:
    """The language of a text by its script and its commonest words; `default` where neither tells.

    A text in another script, or in a Latin one without any word of a table, has no language: only general means apply.
    """
    sample = text[:_SAMPLE_CHARS].lower()
    letters = sum(map(str.isalpha, sample)) or 1
    for script, language in _SCRIPTS:
        if 3 * len(script.findall(sample)) > letters:
            return language
    found = _LATIN.findall(sample)
    if 2 * sum(map(len, found)) < letters and letters > 1:
        return _UNKNOWN
    hits = {language.code: sum(word in language.dropped for word in found) for language in _BY_WORDS}
    best = max(_BY_WORDS, key=lambda language: (hits[language.code], language is default))
    return best if hits[best.code] >= max(_TELLING, hits[default.code] + 1 if default.code in hits else 0) else default
