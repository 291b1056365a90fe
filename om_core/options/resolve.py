"""The option tree becomes a MemoryPolicy: every number absolute, all of them valid together (DESIGN 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

from om_core.domain.errors import PolicyError
from om_core.domain.policy import DEFAULT_MODEL, JobPolicy, MemoryPolicy, RetrievalPolicy, Scope
from om_core.options import values
from om_core.options.limits import resolve_limits
from om_core.options.phases import resolve_observation, resolve_reflection
from om_core.options.schema import OVERRIDES, Kind, Leaf, Options, normalise, option_value, table
from om_core.options.working_memory import resolve_working_memory

HOOKS: Final = (
    "on_observation_start", "on_observation_end", "on_reflection_start", "on_reflection_end",
    "before_observation", "after_observation", "before_reflection", "after_reflection",
)  # fmt: skip
_HOOK: Final = Leaf(Kind.OBJECT)


def resolve_policy(
    options: Mapping[str, Any] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    default_model: str = DEFAULT_MODEL,
) -> MemoryPolicy:
    """The policy that these options mean. Pure; the arguments are not kept.

    Args:
        options: the tree, in snake_case or camelCase; None for all defaults.
        overrides: what the thread or memory sets for itself: `observation.message_tokens` and
            `reflection.observation_tokens` (behaviour 1.7). One that the other options do not allow is ignored.
        default_model: what a phase without a model, and the word `default`, stand for.

    Raises:
        PolicyError: naming the option's dotted path, its value and the allowed range.
    """
    tree = normalise(table({} if options is None else options, "options"))
    own = normalise(table({} if overrides is None else overrides, "config"), OVERRIDES, "config.")
    observation = resolve_observation(tree, own, default_model)
    working_memory = resolve_working_memory(tree, managed=observation.manage_working_memory)
    if "hooks" in tree:
        _check_hooks(tree["hooks"])
    return MemoryPolicy(
        scope=_scope(option_value(tree, "scope"), "scope"),
        observation=observation,
        reflection=resolve_reflection(tree, own, default_model, buffering=observation.buffer_tokens is not None),
        job=_job(tree.get("job", {})),
        limits=resolve_limits(tree),
        enabled=values.flag(option_value(tree, "enabled"), "enabled"),
        share_token_budget=_share_token_budget(tree, buffering=observation.buffer_tokens is not None),
        temporal_markers=values.flag(option_value(tree, "temporal_markers"), "temporal_markers"),
        retrieval=_retrieval(option_value(tree, "retrieval")),
        obscure_thread_ids=values.flag(option_value(tree, "obscure_thread_ids"), "obscure_thread_ids"),
        working_memory=working_memory,
        hook_execution=_hook_execution(option_value(tree, "hook_execution")),
    )


def _job(job: Options) -> JobPolicy:
    tree = {"job": job}
    base = values.duration(option_value(tree, "job.backoff_base"), "job.backoff_base")
    cap = values.duration(option_value(tree, "job.backoff_cap"), "job.backoff_cap")
    if cap < base and "backoff_cap" in job:
        value = option_value(tree, "job.backoff_cap")
        raise PolicyError("job.backoff_cap", value, f"a time of at least job.backoff_base = {base:g} s")
    if cap < base:
        value = option_value(tree, "job.backoff_base")
        raise PolicyError("job.backoff_base", value, f"a time of at most job.backoff_cap = {cap:g} s")
    pause = values.duration(option_value(tree, "job.breaker_pause"), "job.breaker_pause")
    longest = values.duration(option_value(tree, "job.breaker_longest_pause"), "job.breaker_longest_pause")
    if longest < pause:
        value = option_value(tree, "job.breaker_longest_pause")
        raise PolicyError("job.breaker_longest_pause", value, f"a time of at least job.breaker_pause = {pause:g} s")
    return JobPolicy(
        max_failures=values.count(option_value(tree, "job.max_failures"), "job.max_failures"),
        max_expired_leases=values.count(option_value(tree, "job.max_expired_leases"), "job.max_expired_leases"),
        backoff_base_s=base,
        backoff_cap_s=cap,
        breaker_failures=values.count(option_value(tree, "job.breaker_failures"), "job.breaker_failures"),
        breaker_base_s=pause,
        breaker_cap_s=longest,
    )


def _share_token_budget(tree: Options, *, buffering: bool) -> bool:
    shared = values.flag(option_value(tree, "share_token_budget"), "share_token_budget")
    if not (shared and buffering):
        return shared
    names = (
        ("observation", "buffer_tokens"),
        ("observation", "buffer_activation"),
        ("reflection", "buffer_activation"),
    )
    explicit = [f"{phase}.{name}" for phase, name in names if name in tree.get(phase, {})]
    cause = f"remove {' and '.join(explicit)} and" if explicit else "buffering is on by default:"
    allowed = f"True only with buffering off; {cause} set observation.buffer_tokens to False"
    raise PolicyError("share_token_budget", shared, allowed)


def _retrieval(value: object) -> RetrievalPolicy:
    if isinstance(value, bool):
        return RetrievalPolicy(enabled=value)
    if not isinstance(value, Mapping):
        raise PolicyError("retrieval", value, "True, False, or {'vector', 'scope', 'instructions'}")
    return RetrievalPolicy(
        enabled=True,
        vector=values.flag(value.get("vector", False), "retrieval.vector"),
        scope=_scope(value.get("scope", "resource"), "retrieval.scope"),
        instructions=values.optional_text(value.get("instructions"), "retrieval.instructions"),
    )


def _scope(value: object, option: str) -> Scope:
    return cast("Scope", values.choice(value, option, ("thread", "resource")))


def _hook_execution(value: object) -> Literal["non_blocking", "await"]:
    if value == "non-blocking":  # the reference's spelling
        value = "non_blocking"
    return cast('Literal["non_blocking", "await"]', values.choice(value, "hook_execution", ("non_blocking", "await")))


def _check_hooks(value: object) -> None:
    """Hooks are live objects of one process: checked here, kept by whoever opened the memory, in no policy."""
    hooks: Mapping[str, Callable[..., Any]] = normalise(table(value, "hooks"), dict.fromkeys(HOOKS, _HOOK), "hooks.")
    for name, hook in hooks.items():
        if not callable(hook):
            raise PolicyError(f"hooks.{name}", hook, "a function")
