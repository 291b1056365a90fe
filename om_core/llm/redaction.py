"""What of a foreign error may be stored and shown: one short line without keys and without bodies."""

from __future__ import annotations

import json
import re
from typing import Final

MOST_EXCERPT: Final = 300
_MOST_READ: Final = 20_000
"""Characters of a foreign error that are looked at; some quote the whole request."""
MARK: Final = "[redacted]"

_PREFIX: Final = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?::| -) +)+")
_NOISE: Final = re.compile(r"(?:<(?:!doctype|html)\b|Traceback \(most recent call last\))", re.IGNORECASE)
_NAMED: Final = r"(?:api[_-]?key|secret|token|password|authorization|signature|key)[\"']?\s*(?:=|:\s)\s*[\"']?"
_SECRETS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", rf"\1 {MARK}"),
        (r"\b(?:sk|pk|rk|gsk|xai|hf|tvly|r8|pplx|nvapi|ghp|gho|github_pat|xox[abp])[-_][\w*-]{6,}", MARK),
        (r"\bAIza[\w-]{10,}", MARK),
        (r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}", MARK),
        (r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]+)?", MARK),
        (r"(://)[^/\s@]+@", rf"\1{MARK}@"),
        (rf"({_NAMED})(?!\[redacted\])[^\s\"'&,;)}}]{{6,}}", rf"\1{MARK}"),
        (r"(api key provided:?\s*)\S+", rf"\1{MARK}"),
    )
)


def redact(text: str) -> str:
    """The text with whatever looks like a key, a token or a password replaced."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def excerpt(text: str) -> str:
    """The readable message inside a foreign error, on one line, redacted, at most 300 characters.

    Of a JSON body only the message counts; pages of HTML, tracebacks and LiteLLM's prefixes are left out.
    """
    head = _PREFIX.sub("", _NOISE.split(text[:_MOST_READ], maxsplit=1)[0])
    before, brace, _ = head.partition("{")
    if brace:
        head = f"{before.rstrip()} {_message_of(head[len(before) :])}"
    line = redact(" ".join(head.split()))
    return line if len(line) <= MOST_EXCERPT else f"{line[: MOST_EXCERPT - 3]}..."


def _message_of(text: str) -> str:
    """The message of the JSON body that a text starts with; empty when there is none."""
    try:
        body, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        found = re.search(r"[\"']message[\"']\s*:\s*([\"'])(.*?)(?<!\\)\1", text, re.DOTALL)
        return found.group(2) if found else ""
    error = body.get("error", body)
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""
