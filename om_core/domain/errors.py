"""Errors carry the policy: what the caller has to do is the class, not the text."""

from __future__ import annotations

from typing import Any, Final

MOST_QUOTED: Final = 200
"""Characters of a value in an error."""


def shown(value: object) -> str:
    """A caller's value as errors quote it: not more than they need to be understood."""
    text = repr(value)
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}… ({len(text):,} characters)"


class OmError(Exception):
    """Base of every error this library raises on purpose; `code` is stable and machine-readable."""

    code = "om_error"
    log_text: str | None = None
    """What logs may hold of it, where the text itself may quote what was being worked on."""


class InvalidInputError(OmError, ValueError):
    """The caller sent something that cannot be stored; `path` names the field, as in `messages.3.parts.0.text`."""

    code = "invalid_input"

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.reason = message


class PolicyError(OmError, ValueError):
    """An option has a value outside its range; the text names the option, the value and the allowed range."""

    code = "invalid_option"

    def __init__(self, option: str, value: object, allowed: str) -> None:
        super().__init__(f"{option} = {shown(value)} is not allowed: {allowed}")
        self.option = option
        self.value = value
        self.allowed = allowed


class NotFoundError(OmError, LookupError):
    """No such thread, job, message or generation for this tenant."""

    code = "not_found"


class ForbiddenError(OmError):
    """This caller may not do that, whatever it names: a key that may only read, or that is narrowed."""

    code = "forbidden"


class AmbiguousThreadError(OmError):
    """Several resources of this tenant use the same thread id; name the resource."""

    code = "ambiguous_thread"


class ConflictError(OmError):
    """The request contradicts what is stored: a known id with other content, a stale version, a fixed scope."""

    code = "conflict"


class LostRaceError(OmError):
    """Someone else won: a fence, a cursor or a version changed. The result is dropped, its cost is booked."""

    code = "lost_race"

    def __init__(self, message: str, *, usage: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.usage = usage
        """What the dropped model call cost: model, input_tokens, output_tokens, cost_usd."""


class RetryLaterError(OmError):
    """An outage or a limit, not the input's fault; try again after `after_s` seconds (None: the usual backoff)."""

    code = "retry_later"

    def __init__(self, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class DatabaseOutageError(RetryLaterError):
    """The database could not do its part: it was away, full, locked or late. Nobody's input is the cause."""

    code = "database"


class GiveUpError(OmError):
    """This input cannot be processed by this model, however often it is tried."""

    code = "give_up"


class UnusableOutputError(GiveUpError):
    """The model answered, and the answer is degenerate, unparsable or a refusal (DESIGN 6.7)."""

    code = "unusable_output"
    usage: dict[str, Any] | None = None
    """What the unusable answer cost: model, input_tokens, output_tokens, cost_usd."""
    booked: bool = False
    """Whether that was booked already, when each call was saved."""


class SetupError(OmError):
    """Somebody has to fix the installation: a missing key, an unknown model, an old schema. The text says how."""

    code = "setup"


class SchemaVersionError(SetupError):
    """The database schema is not the one this code was written for."""

    code = "schema_version"
