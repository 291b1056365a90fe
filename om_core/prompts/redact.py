"""Secrets in what models read and write: replaced by `[redacted]` (DESIGN 7). Pure and linear in the length.

Known by their shape (keys of providers, signed tokens, private keys, credentials in URLs) or by the name they are given
to (`password=…`, `"api_key": "…"`). Talk about secrets, placeholders, code that fetches one, hashes and ids stay.
"""

from __future__ import annotations

import operator
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from om_core.domain.message import UNSEEN_PARTS, File, Image, Text, ToolCall, ToolResult
from om_core.domain.tags import INJECTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from om_core.domain.message import Json, Message, Part, StoredMessage
    from om_core.ports import AskedValue, ObserverMaterial

MARK: Final = "[redacted]"

_SHAPES: Final = re.compile(
    # Not within a longer word; for shapes that base64 can hold, not within that either.
    r"(?<![A-Za-z0-9_-])"
    r"(?:(?:sk|gsk|xai|pplx|nvapi|tvly|r8|hf|npm|pypi)[-_](?=[\w-]{0,200}[0-9])[\w-]{20,}"
    r"|(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,}"
    r"|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|(?<![+/])(?:AIza[\w-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9+/]))"
    r"|om_live_\w{8,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)"
    r"|(?<![0-9])[0-9]{8,10}:[A-Za-z0-9_-]{35}(?![\w-])"
)
# What stands in every text that a pattern can match. Looking for it first is much cheaper than the patterns, and
# nearly all text has none of it.
_PROVIDERS: Final = ("sk", "gsk", "xai", "pplx", "nvapi", "tvly", "r8", "hf", "npm", "pypi")
_STARTS: Final = (
    *(f"{name}{mark}" for name in _PROVIDERS for mark in "-_"),
    *("pk_", "rk_", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "xox", "xapp-"),
    *("AIza", "AKIA", "ASIA", "om_live_", "SG.", "eyJ"),
)
_BOT: Final = re.compile(r"[0-9]{8}:")
_SHORTEST: Final = 15
"""Characters of the shortest secret that is known by its shape; none of them holds a blank."""
_WORDS: Final = ("pass", "pwd", "secret", "key", "credential", "token")
_BREAK: Final = r"(?:\s|\\[nrt])*+"
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_BREAK}[A-Za-z-]{{3,20}}: [^\n\\]{{0,200}}){{0,8}}+"
    rf"(?:{_BREAK}[A-Za-z0-9+/=]{{16,}}+)*+"
    rf"(?:{_BREAK}[A-Za-z0-9+/=]{{0,80}}{_BREAK}-----END [A-Z ]{{0,40}}KEY(?: BLOCK)?-----)?"
)
_HEADER: Final = re.compile(
    r"\b(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:[a-z]{3,20}\s)?\s{0,3}|bearer\s{1,3}(?=[\w.~+/=-]{0,200}[0-9]))"
    r"[\w.~+/=-]{12,}",
    re.IGNORECASE,
)
_CREDENTIALS: Final = re.compile(r"(://[^\s/@:\"'<>]{0,100}:)[^\s/\"'<>]{1,200}@")
_WEBHOOK: Final = re.compile(r"(hooks\.slack\.com/services/)[\w/-]{10,}")

_PASSWORD: Final = (
    r"passwords?|passwd|pwd|passphrase|pass[_-]?code|secret(?:[_-]?access)?(?:[_-]?key)?|(?:api|access|private|signing|"
    r"encryption|auth)[_-]?key|client[_-]?secret|credentials?"
)
_ASSIGNED: Final = re.compile(
    rf"(?P<name>{_PASSWORD}|token)(?P<sign>\\?[\"']?(?:\s{{0,3}}(?:=>|:=|=|:)\s{{0,3}}))"
    r"(?P<value>\\?\"[^\"\\\n]{1,300}|\\?'[^'\\\n]{1,300}|[^\s\"'\\,;&<>]{4,300}+(?P<call>[\"'])?)",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(
    r"(?P<option>(?<!\S)--?(?:password|passwd|token|api-?key|secret) )(?P<value>[^\s-]\S{3,200})"
)
_NO_SECRET: Final = re.compile(
    r"[$<{%\[(*.…]|x{3,}|(?:none|null|nil|true|false|undefined|missing|empty|required|optional|invalid|expired|unset|"
    r"string|str|bool|unknown|changed|wrong|reset|your[_-]\w{0,40}|example|placeholder|changeme)\b",
    re.IGNORECASE,
)
_CODE: Final = re.compile(
    r"[A-Za-z_]\w{0,80}(?:\.[A-Za-z_]\w{0,80})*+(?:[(\[]|$)|(?:self|os|process|settings|config|env)\."
)
_KEY: Final = re.compile(rf"(?:{_PASSWORD}|authorization|cookie)s?$", re.IGNORECASE)
_TOKEN_KEY: Final = re.compile(r"token$", re.IGNORECASE)


def redact(text: str) -> str:
    """The text with `[redacted]` for each secret. Idempotent."""
    if "-----BEGIN" in text:
        text = _PRIVATE_KEY.sub(MARK, text)
    if "://" in text and "@" in text:
        text = _CREDENTIALS.sub(rf"\1{MARK}@", text)
    lower = text.lower()
    if "authorization" in lower or "bearer" in lower:
        text = _HEADER.sub(rf"\1{MARK}", text)
    if "hooks.slack" in lower:
        text = _WEBHOOK.sub(rf"\1{MARK}", text)
    if _may_hold_shape(text):
        text = _SHAPES.sub(MARK, text)
    if any(word in lower for word in _WORDS):
        text = _OPTION.sub(_without_option, text)
        text = _ASSIGNED.sub(_without_value, text)
    return text


def _may_hold_shape(text: str) -> bool:
    """Whether any word is long enough to be a secret and something in the text begins like one."""
    if max(map(len, text.split()), default=0) < _SHORTEST:
        return False
    return any(start in text for start in _STARTS) or _BOT.search(text) is not None


def _without_option(match: re.Match[str]) -> str:
    return match[0] if _NO_SECRET.match(match["value"]) else f"{match['option']}{MARK}"


def _without_value(match: re.Match[str]) -> str:
    """`name = [redacted]`, unless what stands there is a placeholder, a number of tokens, plain words or code."""
    name, sign, value = match["name"], match["sign"], match["value"]
    quote = value[: len(value) - len(value.lstrip("\\\"'"))]
    bare = value[len(quote) :]
    is_token = name.lower() == "token"
    if not quote and not _is_secret_value(bare, spaced=" " in sign, colon=":" in sign and "=" not in sign):
        return match[0]
    if not bare or _NO_SECRET.match(bare) or (is_token and not _is_token(bare)):
        return match[0]
    return f"{name}{sign}{quote}{MARK}"


def _is_secret_value(bare: str, *, spaced: bool, colon: bool) -> bool:
    """Whether something without quotes is a value: after a colon or in spaced code, words and expressions are none."""
    if bare.endswith(("(", "[", '"', "'")) or "(" in bare or "[" in bare:
        return False
    if spaced or colon:
        plain = bare.rstrip(".!?)")
        is_code = _CODE.fullmatch(plain) is not None and not any(map(str.isdigit, plain))
        return len(plain) >= 6 and not is_code and not plain.isalpha()
    return not _CODE.match(bare) or "." not in bare


def _is_token(bare: str) -> bool:
    """Whether a value named a token is one: long, and neither a word nor a number."""
    return len(bare) >= 8 and any(map(str.isdigit, bare)) and not bare.isdigit()


def redact_json(value: Json) -> Json:
    """The same for a payload, also what stands under the name of a secret. A clean value is returned itself."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        items = [redact_json(item) for item in value]
        return items if items != value else value
    if isinstance(value, dict):
        pairs = {name: _entry(str(name), item) for name, item in value.items()}
        return pairs if pairs != value else value
    return value


def _entry(name: str, item: Json) -> Json:
    if not isinstance(item, str) or not item.strip():
        return redact_json(item)
    secret = _KEY.search(name) or (_TOKEN_KEY.search(name) and _is_token(item))
    return MARK if secret and not _NO_SECRET.match(item) else redact(item)


def redact_messages(messages: Iterable[StoredMessage]) -> tuple[StoredMessage, ...]:
    """The messages as an Observer may read them: words, arguments and results redacted, without what it never sees
    (reasoning, data, what providers' forms left over); of pictures and files their names and addresses.
    """
    return tuple(_stored(stored) for stored in messages)


def _stored(stored: StoredMessage) -> StoredMessage:
    message = _message(stored.message)
    return stored if message is stored.message else replace(stored, message=message)


def _message(message: Message) -> Message:
    """The message itself where nothing of it has to go: nearly always, and copies of all cost more than the looking."""
    parts = tuple(_part(part) for part in message.parts if not isinstance(part, UNSEEN_PARTS))
    mark = {INJECTED: True} if message.metadata.get(INJECTED) is True else {}
    if mark == message.metadata and all(map(operator.is_, parts, message.parts)) and len(parts) == len(message.parts):
        return message
    return replace(message, parts=parts, metadata=mark)


def _part(part: Part) -> Part:
    if isinstance(part, Text):
        text = redact(part.text)
        if text is part.text and part.provider_metadata is None:
            return part
        return replace(part, text=text, provider_metadata=None)
    if isinstance(part, ToolCall):
        return replace(part, args=redact_json(part.args), provider_metadata=None)
    if isinstance(part, ToolResult):
        seen = redact_json(part.visible)
        return replace(part, result=seen, model_result=None, provider_metadata=None)
    if isinstance(part, Image | File) and part.url is not None and not part.url.startswith("data:"):
        part = replace(part, url=redact(part.url))
    if isinstance(part, File) and part.filename is not None:
        part = replace(part, filename=redact(part.filename))
    return part


def redact_material(material: ObserverMaterial) -> ObserverMaterial:
    """Everything an Observer is given, whether it reads the prompt or the material."""
    return replace(
        material,
        messages=redact_messages(material.messages),
        prior_notes=redact(material.prior_notes),
        current_task=redact(material.current_task or "") or None,
        thread_title=redact(material.thread_title or "") or None,
        values=redact_values(material.values),
    )


def redact_values(asked: Iterable[AskedValue]) -> tuple[AskedValue, ...]:
    """The same for what is believed of values so far."""
    return tuple(replace(value, previous=redact(value.previous)) for value in asked)
