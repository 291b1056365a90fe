"""`limits`: what background work may use at once and per day (DESIGN 5)."""

from __future__ import annotations

from typing import Any, Final

from om_core.domain.errors import PolicyError
from om_core.domain.message import JsonObject
from om_core.domain.policy import LimitsPolicy
from om_core.options import values
from om_core.options.schema import Kind, Leaf, Options, normalise, option_value, table

MOST_IN_FLIGHT: Final = 10_000
MOST_BYTES: Final = 1_000_000
_PRICE: Final = {name: Leaf(Kind.NUMBER) for name in ("input", "output")}


def resolve_limits(tree: Options) -> LimitsPolicy:
    """The limits of a normalised tree; a daily limit of False or None is off.

    Raises:
        PolicyError: naming the option's dotted path, its value and the allowed range.
    """
    return LimitsPolicy(
        in_flight=_in_flight(option_value(tree, "limits.in_flight")),
        tokens_per_day=_per_day(option_value(tree, "limits.tokens_per_day"), "limits.tokens_per_day", whole=True),
        usd_per_day=_per_day(option_value(tree, "limits.usd_per_day"), "limits.usd_per_day", whole=False),
        prices=_prices(option_value(tree, "limits.prices")),
        extracted_bytes=_bytes(tree, "limits.extracted_bytes"),
        working_memory_bytes=_bytes(tree, "limits.working_memory_bytes"),
        other_threads_tokens=values.tokens(
            option_value(tree, "limits.other_threads_tokens"), "limits.other_threads_tokens", least=0
        ),
    )


def _bytes(tree: Options, option: str) -> int:
    allowed = f"a whole number of bytes from 1 to {MOST_BYTES}"
    value = option_value(tree, option)
    given = values.number(value, option, allowed)
    if not 1 <= given <= MOST_BYTES or given != int(given):
        raise PolicyError(option, value, allowed)
    return int(given)


def _in_flight(value: object) -> int:
    allowed = f"a whole number of running jobs per tenant from 1 to {MOST_IN_FLIGHT}"
    given = values.number(value, "limits.in_flight", allowed)
    if not 1 <= given <= MOST_IN_FLIGHT or given != int(given):
        raise PolicyError("limits.in_flight", value, allowed)
    return int(given)


def _per_day(value: object, path: str, *, whole: bool) -> JsonObject:
    """Limits by scope; one of False is off, and so are all if the table is."""
    found: JsonObject = {}
    for scope, limit in table({} if value in (None, False) else value, path).items():
        option = f"{path}.{scope}"
        if limit is False:
            continue
        if whole:
            found[scope] = values.tokens(limit, option)
            continue
        allowed = "False, or US dollars per day above 0"
        given = values.number(limit, option, allowed)
        if given <= 0:
            raise PolicyError(option, limit, allowed)
        found[scope] = float(given)
    return found


def _prices(value: Any) -> JsonObject:
    option = "limits.prices"
    allowed = "US dollars per million tokens from 0, as in {'openai/my-model': {'input': 0.5, 'output': 1.5}}"
    found: JsonObject = {}
    for model, price in table({} if value is None else value, option).items():
        given = normalise(table(price, f"{option}.{model}"), _PRICE, f"{option}.{model}.")
        sides = {side: values.number(given.get(side), f"{option}.{model}.{side}", allowed) for side in _PRICE}
        if min(sides.values()) < 0:
            raise PolicyError(f"{option}.{model}", dict(price), allowed)
        found[str(model)] = sides
    return found
