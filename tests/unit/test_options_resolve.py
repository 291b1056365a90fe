"""The option tree of behaviour 1.2 to 1.7: each row with its default, valid examples and every error."""

import pytest

from om_core.domain.errors import PolicyError, shown
from om_core.domain.policy import MemoryPolicy, RetrievalPolicy
from om_core.options import resolve_policy
from om_core.options.schema import camel, leaves


def tree(path, value, **more):
    """A tree with one option set; `more` sets others, with __ between the levels."""
    options: dict = {}
    for name, item in [(path, value), *((key.replace("__", "."), item) for key, item in more.items())]:
        *parents, last = name.split(".")
        node = options
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = item
    return options


def read(policy, path):
    for name in path.split("."):
        policy = getattr(policy, name)
    return policy


@pytest.mark.conforms("1.2")
def test_no_options_give_the_default_policy():
    assert resolve_policy() == resolve_policy({}) == resolve_policy(None) == MemoryPolicy()


def test_an_option_set_to_none_counts_as_not_set():
    assert resolve_policy({path.split(".")[0]: None for path, _ in leaves()}) == MemoryPolicy()


@pytest.mark.conforms("1.3")
def test_the_defaults_shown_to_users_resolve_to_the_default_policy():
    written: dict = {}
    for path, leaf in leaves():
        if leaf.default is not None:
            *parents, last = path.split(".")
            node = written
            for parent in parents:
                node = node.setdefault(parent, {})
            node[last] = leaf.default
    written.pop("activate_on_provider_change")
    assert resolve_policy(written) == MemoryPolicy()


ACCEPTED = [
    # option, value, policy field, resolved
    ("enabled", False, "enabled", False),
    ("scope", "resource", "scope", "resource"),
    ("retrieval", True, "retrieval", RetrievalPolicy(enabled=True, scope="resource")),
    ("retrieval", {}, "retrieval", RetrievalPolicy(enabled=True)),
    (
        "retrieval",
        {"vector": True, "scope": "thread", "instructions": "x"},
        "retrieval",
        RetrievalPolicy(enabled=True, vector=True, scope="thread", instructions="x"),
    ),
    ("temporal_markers", True, "temporal_markers", True),
    ("obscure_thread_ids", True, "obscure_thread_ids", True),
    ("hook_execution", "await", "hook_execution", "await"),
    ("hook_execution", "non-blocking", "hook_execution", "non_blocking"),
    ("activate_after_idle", "5m", "observation.activate_after_idle_s", 300.0),
    ("activate_after_idle", "5m", "reflection.activate_after_idle_s", None),
    ("activate_on_provider_change", True, "observation.activate_on_provider_change", True),
    ("activate_on_provider_change", True, "reflection.activate_on_provider_change", False),
    ("observation.message_tokens", 20_000, "observation.message_tokens", 20_000),
    ("observation.message_tokens", 20_000, "observation.buffer_tokens", 4_000),
    ("observation.message_tokens", 20_000, "observation.retention_tokens", 4_000),
    ("observation.message_tokens", 20_000, "observation.block_after_tokens", 24_000),
    ("observation.message_tokens", 20_000.5, "observation.message_tokens", 20_001),
    ("observation.buffer_tokens", 0.1, "observation.buffer_tokens", 3_000),
    ("observation.buffer_tokens", 5_000, "observation.buffer_tokens", 5_000),
    ("observation.buffer_tokens", 1, "observation.buffer_tokens", 1),
    ("observation.buffer_tokens", False, "observation.buffer_tokens", None),
    ("observation.buffer_tokens", False, "observation.block_after_tokens", 30_000),
    ("observation.buffer_tokens", False, "observation.retention_tokens", 0),
    ("observation.buffer_tokens", False, "reflection.buffer_at_tokens", None),
    ("observation.buffer_tokens", False, "reflection.block_after_tokens", 40_000),
    ("observation.buffer_activation", 0.7, "observation.retention_tokens", 9_000),
    ("observation.buffer_activation", 1, "observation.retention_tokens", 0),
    ("observation.buffer_activation", 1_000, "observation.retention_tokens", 1_000),
    ("observation.buffer_activation", 5_000, "observation.retention_tokens", 5_000),
    ("observation.block_after", 1, "observation.block_after_tokens", 30_000),
    ("observation.block_after", 1.5, "observation.block_after_tokens", 45_000),
    ("observation.block_after", 99, "observation.block_after_tokens", 2_970_000),
    ("observation.block_after", 30_000, "observation.block_after_tokens", 30_000),
    ("observation.block_timeout", 0, "observation.block_timeout_s", 0.0),
    ("observation.block_timeout", False, "observation.block_timeout_s", 0.0),
    ("observation.block_timeout", "10s", "observation.block_timeout_s", 10.0),
    ("observation.buffer_max_age", "30m", "observation.buffer_max_age_s", 1_800.0),
    ("observation.open_call_max_age", 60_000, "observation.open_call_max_age_s", 60.0),
    ("observation.max_attempt", "90s", "observation.model.max_attempt_s", 90.0),
    ("observation.window_tokens", 64_000, "observation.model.window_tokens", 64_000),
    ("observation.previous_observer_tokens", False, "observation.previous_observer_tokens", None),
    ("observation.previous_observer_tokens", 0, "observation.previous_observer_tokens", 0),
    ("observation.previous_observer_tokens", 500, "observation.previous_observer_tokens", 500),
    ("observation.max_tokens_per_batch", 5_000, "observation.max_tokens_per_batch", 5_000),
    ("observation.buffer_on_idle", True, "observation.buffer_on_idle", True),
    ("observation.activate_after_idle", "auto", "observation.activate_after_idle_s", "auto"),
    ("observation.activate_after_idle", 0, "observation.activate_after_idle_s", 0.0),
    ("observation.activate_on_provider_change", True, "observation.activate_on_provider_change", True),
    ("observation.instruction", "Write in French.", "observation.instruction", "Write in French."),
    ("observation.thread_title", True, "observation.thread_title", True),
    ("observation.observe_attachments", "auto", "observation.observe_attachments", "auto"),
    ("observation.observe_attachments", False, "observation.observe_attachments", False),
    ("observation.observe_attachments", [], "observation.observe_attachments", ()),
    ("observation.observe_attachments", ["Image/PNG", "*"], "observation.observe_attachments", ("image/png", "*")),
    ("observation.continuation_hints", False, "observation.current_task", False),
    ("observation.continuation_hints", {"current_task": False}, "observation.current_task", False),
    ("observation.continuation_hints", {"current_task": False}, "observation.suggested_response", True),
    ("observation.manage_working_memory", True, "observation.manage_working_memory", True),
    (
        "observation.model_settings",
        {"temperature": 1},
        "observation.model.settings",
        {"temperature": 1.0, "max_output_tokens": 100_000},
    ),
    (
        "observation.model_settings",
        {"max_output_tokens": 9},
        "observation.model.settings",
        {"max_output_tokens": 9},
    ),
    ("observation.provider_options", {}, "observation.model.provider_options", {}),
    (
        "observation.provider_options",
        {"openai": {"x": [1]}},
        "observation.model.provider_options",
        {"openai": {"x": [1]}},
    ),
    ("reflection.observation_tokens", 10_000, "reflection.observation_tokens", 10_000),
    ("reflection.observation_tokens", 10_000, "reflection.buffer_at_tokens", 5_000),
    ("reflection.observation_tokens", 10_000, "reflection.block_after_tokens", 12_000),
    ("reflection.buffer_activation", 0.25, "reflection.buffer_at_tokens", 10_000),
    ("reflection.buffer_activation", 1, "reflection.buffer_at_tokens", 40_000),
    ("reflection.buffer_activation", False, "reflection.buffer_at_tokens", None),
    ("reflection.buffer_activation", False, "reflection.block_after_tokens", 40_000),
    ("reflection.block_after", 2, "reflection.block_after_tokens", 80_000),
    ("reflection.block_after", 41_000, "reflection.block_after_tokens", 41_000),
    ("reflection.activate_after_idle", "1h", "reflection.activate_after_idle_s", 3_600.0),
    ("reflection.activate_on_provider_change", True, "reflection.activate_on_provider_change", True),
    ("reflection.instruction", "Keep names.", "reflection.instruction", "Keep names."),
    ("reflection.continuation_hints", False, "reflection.suggested_response", False),
    ("reflection.max_attempt", "3m", "reflection.model.max_attempt_s", 180.0),
    ("job.max_failures", 5, "job.max_failures", 5),
    ("job.max_expired_leases", 2, "job.max_expired_leases", 2),
    ("job.backoff_base", "1s", "job.backoff_base_s", 1.0),
    ("job.backoff_cap", "10m", "job.backoff_cap_s", 600.0),
]


@pytest.mark.conforms("1.3", "1.5")
@pytest.mark.report("A16")
@pytest.mark.parametrize(("option", "value", "field", "resolved"), ACCEPTED)
def test_an_accepted_value_resolves_to_its_number(option, value, field, resolved):
    assert read(resolve_policy(tree(option, value)), field) == resolved


@pytest.mark.conforms("1.2")
@pytest.mark.parametrize(("option", "value", "field", "resolved"), ACCEPTED)
def test_both_spellings_mean_the_same(option, value, field, resolved):
    spelled = ".".join(camel(name) for name in option.split("."))
    if isinstance(value, dict) and option.rpartition(".")[2] != "provider_options":
        value = {camel(name): item for name, item in value.items()}
    assert read(resolve_policy(tree(spelled, value)), field) == resolved


FLAGS = [path for path, leaf in leaves() if isinstance(leaf.default, bool) and not leaf.keys]
TIMES = ["block_timeout", "buffer_max_age", "open_call_max_age", "max_attempt"]
REFUSED = [
    # option, value, a part of the allowed range
    *((path, "yes", "True or False") for path in FLAGS),
    ("scope", "global", "'thread', 'resource'"),
    ("scope", [], "'thread', 'resource'"),
    ("retrieval", 1, "True, False, or"),
    ("retrieval.scope", "all", "'thread', 'resource'"),
    ("retrieval.vector", 1, "True or False"),
    ("hook_execution", "later", "'non_blocking', 'await'"),
    ("hooks", [], "a table"),
    ("hooks.before_observation", "text", "a function"),
    ("activate_after_idle", "5 days", "'auto', or False"),
    ("observation", 3, "a table of options"),
    ("observation.message_tokens", 0, "from 1 to"),
    ("observation.message_tokens", 0.4, "from 1 to"),
    ("observation.message_tokens", -5, "from 1 to"),
    ("observation.message_tokens", "30000", "from 1 to"),
    ("observation.message_tokens", True, "from 1 to"),
    ("observation.message_tokens", float("nan"), "from 1 to"),
    ("observation.message_tokens", 10**400, "from 1 to"),
    ("observation.max_tokens_per_batch", 0, "from 1 to"),
    ("observation.window_tokens", 0, "from 1 to"),
    ("observation.buffer_tokens", 0, "below message_tokens = 30000"),
    ("observation.buffer_tokens", -1, "below message_tokens = 30000"),
    ("observation.buffer_tokens", 30_000, "below message_tokens = 30000"),
    ("observation.buffer_tokens", 1e-9, "rounds to 0"),
    ("observation.buffer_tokens", 0.99999, "resolves to 30000"),
    ("observation.buffer_tokens", True, "False, a fraction"),
    ("observation.buffer_tokens", "0.2", "False, a fraction"),
    ("observation.buffer_activation", 0, "a ratio above 0"),
    ("observation.buffer_activation", -0.5, "a ratio above 0"),
    ("observation.buffer_activation", 1.5, "keep from 1000"),
    ("observation.buffer_activation", 999, "keep from 1000"),
    ("observation.buffer_activation", 30_000, "below message_tokens = 30000"),
    ("observation.buffer_activation", False, "a ratio above 0"),
    ("observation.block_after", 0.9, "at least message_tokens = 30000"),
    ("observation.block_after", 29_999, "resolves to 29999"),
    ("observation.block_after", 100, "resolves to 100"),
    ("observation.block_after", False, "a factor from 1"),
    ("observation.previous_observer_tokens", -1, "False for all, or tokens from 0"),
    ("observation.previous_observer_tokens", float("inf"), "False for all, or tokens from 0"),
    ("observation.previous_observer_tokens", True, "False for all, or tokens from 0"),
    *((f"observation.{name}", "auto", "'5m'") for name in TIMES),
    *((f"observation.{name}", -1, "'5m'") for name in TIMES),
    *((f"observation.{name}", 0, "at least 1ms") for name in TIMES[1:]),
    ("observation.activate_after_idle", "soon", "'auto', or False"),
    ("observation.instruction", 5, "a text"),
    ("observation.instruction", "a\0b", "without NUL"),
    ("observation.observe_attachments", "all", "MIME patterns"),
    ("observation.continuation_hints", "yes", "True, False, or"),
    ("observation.continuation_hints.current_task", 1, "True or False"),
    ("observation.model_settings", 3, "a table"),
    ("observation.model_settings.temperature", 3, "from 0 to 2"),
    ("observation.model_settings.temperature", "hot", "from 0 to 2"),
    ("observation.model_settings.max_output_tokens", 0, "from 1 to"),
    ("observation.provider_options", [], "a table"),
    ("observation.provider_options.openai", {1, 2}, "plain JSON"),
    ("observation.provider_options.openai", float("inf"), "plain JSON"),
    ("observation.extract", {}, "a list of extractors"),
    ("reflection.observation_tokens", 0, "from 1 to"),
    ("reflection.buffer_activation", 0, "up to 1"),
    ("reflection.buffer_activation", 1.1, "up to 1"),
    ("reflection.buffer_activation", 20_000, "up to 1"),
    ("reflection.block_after", 0.5, "at least observation_tokens = 40000"),
    ("reflection.block_after", 39_999, "at least observation_tokens = 40000"),
    ("reflection.activate_after_idle", "-5m", "'auto', or False"),
    ("job.max_failures", 0, "from 1 to 1000"),
    ("job.max_failures", 1.5, "from 1 to 1000"),
    ("job.max_expired_leases", "3", "from 1 to 1000"),
    ("job.backoff_base", 0, "at least 1ms"),
    ("job.backoff_base", "1h", "at most job.backoff_cap = 300 s"),
    ("job.backoff_cap", "1s", "at least job.backoff_base = 5 s"),
]


@pytest.mark.conforms("1.5")
@pytest.mark.report("A16")
@pytest.mark.parametrize(("option", "value", "allowed"), REFUSED)
def test_a_refused_value_names_option_value_and_range(option, value, allowed):
    with pytest.raises(PolicyError) as caught:
        resolve_policy(tree(option, value))
    message = str(caught.value)
    assert message.startswith(f"{option} = {shown(value)} is not allowed")
    assert allowed in message


@pytest.mark.parametrize("bad", ["png", "image/", "/png", "", 3])
def test_an_attachment_pattern_must_look_like_a_mime_type(bad):
    with pytest.raises(PolicyError, match=r"observation.observe_attachments = .* MIME patterns"):
        resolve_policy(tree("observation.observe_attachments", ["image/*", bad]))


@pytest.mark.parametrize(("name", "nearest"), [
    ("observation.mesage_tokens", "observation.message_tokens"),
    ("observation.bufferTokenz", "observation.buffer_tokens"),
    ("message_tokens", "observation.message_tokens"),
    ("observationTokens", "reflection.observation_tokens"),
    ("reflection.reflection_tokens", "reflection.observation_tokens"),
    ("job.max_failure", "job.max_failures"),
    ("retrieval.vectors", "retrieval.vector"),
    ("observation.model_settings.temprature", "observation.model_settings.temperature"),
])  # fmt: skip
def test_an_unknown_option_is_refused_with_the_nearest_known_name(name, nearest):
    with pytest.raises(PolicyError) as caught:
        resolve_policy(tree(name, 7))
    assert str(caught.value) == f"{name} = 7 is not allowed: unknown option; the nearest known name is {nearest}"


def test_an_unknown_option_far_from_all_names_lists_what_is_known_there():
    with pytest.raises(PolicyError, match=r"known here: job\.max_failures, job\.max_expired_leases"):
        resolve_policy({"job": {"zzz": 1}})


def test_the_error_about_an_unknown_option_shows_no_key():
    with pytest.raises(PolicyError) as caught:
        resolve_policy({"apiKey": "sk-verysecret"})
    assert "sk-verysecret" not in str(caught.value)


def test_a_name_that_is_no_text_is_an_unknown_option():
    with pytest.raises(PolicyError, match="unknown option"):
        resolve_policy({3: 4})  # type: ignore[dict-item]  # the wrong type is the point


def test_one_option_in_both_spellings_is_refused():
    with pytest.raises(PolicyError, match=r"observation\.message_tokens = 5 is not allowed: given twice"):
        resolve_policy({"observation": {"messageTokens": 4000, "message_tokens": 5}})


def test_options_that_are_no_table_are_refused():
    with pytest.raises(PolicyError, match="a table of options"):
        resolve_policy([1])  # type: ignore[arg-type]  # the wrong type is the point


def test_the_default_buffer_interval_that_rounds_to_nothing_is_refused_by_name():
    with pytest.raises(PolicyError, match=r"observation\.buffer_tokens = 0\.2 .*rounds to 0.*message_tokens = 2"):
        resolve_policy(tree("observation.message_tokens", 2))


@pytest.mark.report("B08")
@pytest.mark.parametrize("options", [{"last_messages": 6}, {"lastMessages": 6}, {"observation": {"last_messages": 6}}])
def test_a_number_of_last_messages_is_refused_because_the_floor_is_in_tokens(options):
    with pytest.raises(PolicyError, match=r"last_?[mM]essages"):
        resolve_policy(options)
    assert resolve_policy({}).observation.retention_tokens == 6_000
