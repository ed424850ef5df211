"""The one settings object, from one TOML file and the command line. Leaf module: imports no room.

An unknown key or a bad value is a ``SettingsError`` that names it. Secrets are never written in the
file: a key is given by the name of the environment variable that holds it (``api_key_env``).
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from .settings_drafts import DraftSettings
from .settings_pool import PoolSettings as PoolSettings
from .settings_routing import Capability, RoutingSettings, is_http
from .settings_scheduling import SchedulingSettings
from .settings_telemetry import TelemetrySettings

Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[int, Meta(gt=0)]
NotNegative = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
Days = Annotated[float, Meta(gt=0)]
Usd = Annotated[float, Meta(ge=0)]

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_CONTEXT_TOKENS = 8192
EXACT_PAGE_TOKENS = 16
"""The only page size of the exact CPU kernels."""
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_MODEL_NAME = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")


class SettingsError(ValueError):
    """The settings cannot be used; the message names the key."""


class _Section(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class ServerSettings(_Section):
    """Where the gateway listens, and what it lets in."""

    host: str = "127.0.0.1"
    port: Port = 8000
    workers: Positive = 1
    max_body_bytes: Positive = 32 * 1024 * 1024
    keepalive_s: Seconds = 10.0
    api_key_env: str | None = None


class EngineSettings(_Section):
    """The engine process.

    api_key_env: the variable that holds the key its clients send; beyond loopback one is required.
    weights: a GGUF file or a safetensors folder; None: the embedded model.
    tool_format: how the model writes tool calls, a folder of grammars/; "auto": told by its chat
        template or its name (docs/toolcall.md), else requests with tools are refused.
    tool_text: how tools are shown to the model: "full": as sent; "short": descriptions and then
        types left out until they fit; "auto": short where the context is below 16,384 tokens.
    dtype: "int8": our exact CPU kernels (weights as stored in 4 or 8 bits, int8 activations);
        "bf16", "fp32", "fp64": stock torch; "auto": int8 where it can run, else bf16.
    device: of stock torch's models. tensor_parallel: processes (on CUDA, GPUs) that share a model.
    exact: no sum is split over ranks, so that their number changes no bit; slower. (What company
        a request has may still change bits of stock torch: the report's ``exact`` stays false.)
    rope_scale: a window of so many times the model's positions, which costs quality (see ``bench
        quality``); ``context_tokens`` may be as large. rope_scaling: how they are stretched.
    threads: 0: as many as suit this machine. page_tokens: of the K/V pool, 16 for our kernels.
    kv_tokens: size of the K/V pool, at least ``context_tokens``.
    step_tokens: most rows of one forward pass (chunked prefill). scheduling: of drafts.
    draft_sources: draft sources that may be used, in order of preference; drafts: trained ones that
        are loaded beside the model, a folder or a table each; None: the package's own, where it was
        made for these weights in this arithmetic.
    control_share: of all windows of ``control_window_s``, those in which the engine does without
        speculation, to measure what it saves (docs/cost.md); drawn by ``control_seed``.
    """

    host: str = "127.0.0.1"
    port: Port = 8001
    api_key_env: str | None = None
    model: str = DEFAULT_MODEL
    weights: str | None = None
    tool_format: str = "auto"
    tool_text: Literal["auto", "short", "full"] = "auto"
    dtype: Literal["auto", "int8", "bf16", "fp32", "fp64"] = "auto"
    device: Literal["cpu", "cuda"] = "cpu"
    tensor_parallel: Annotated[int, Meta(ge=1, le=64)] = 1
    exact: bool = False
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    context_tokens: Positive = DEFAULT_CONTEXT_TOKENS
    rope_scale: Annotated[float, Meta(ge=1.0, le=64.0)] = 1.0
    rope_scaling: Literal["ntk", "linear"] = "ntk"
    kv_tokens: Positive = 24576
    page_tokens: Positive = 16
    max_sequences: Positive = 16
    max_waiting: Positive = 256
    step_tokens: Positive = 512
    draft_sources: list[str] = msgspec.field(default_factory=lambda: ["suffix"])
    drafts: list[str | DraftSettings] | None = None
    max_draft_tokens: NotNegative = 16
    scheduling: SchedulingSettings = msgspec.field(default_factory=SchedulingSettings)
    constraint_backend: Literal["llguidance", "outlines"] = "llguidance"
    control_share: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.02
    control_window_s: Seconds = 30.0
    control_seed: int = 0


class PriceSettings(_Section):
    """Prices of one model, US dollars per million tokens. One that is missing is not known, and the
    cost of what it would price neither. Any price here goes before those of the price table."""

    input_usd_per_m: Usd | None = None
    cached_usd_per_m: Usd | None = None
    cache_write_usd_per_m: Usd | None = None
    cache_write_1h_usd_per_m: Usd | None = None
    output_usd_per_m: Usd | None = None
    reasoning_usd_per_m: Usd | None = None


VENDOR_KINDS = frozenset({"anthropic", "litellm"})
"""Kinds of backends that are a vendor's servers, not one's own."""


class BackendSettings(_Section):
    """A place where requests can run.

    kind: "engine" (ours), "sglang", "vllm", "llamacpp", "openai" (any other URL that speaks it),
        "anthropic" (Anthropic's API, or one that speaks Messages), "litellm" (a commercial API).
    pool: what a self-hosted one costs by the hour. price: of this backend, before its model's.
    lacks: what it can't do, beside what its kind can't; context_tokens: its models' window, where
        that is not the model's. fleet: backends with the same one are equal engines.
    constrained: whether it holds tool calls to their schemas itself; else they are checked here,
        and asked for again up to ``call_retries`` times. None: "engine" and "anthropic" count as
        constrained.
    """

    kind: Literal["engine", "sglang", "vllm", "llamacpp", "openai", "anthropic", "litellm"]
    url: str | None = None
    api_key_env: str | None = None
    connect_timeout_s: Seconds = 5.0
    first_byte_timeout_s: Seconds = 600.0
    idle_timeout_s: Seconds = 120.0
    pool: PoolSettings | None = None
    price: PriceSettings = msgspec.field(default_factory=PriceSettings)
    constrained: bool | None = None
    lacks: list[Capability] = []
    context_tokens: Positive | None = None
    fleet: str | None = None
    call_retries: Annotated[int, Meta(ge=0, le=2)] = 1

    @property
    def retries_of_calls(self) -> int | None:
        """How often a wrong tool call is asked for again; None: calls need no check."""
        by_kind = self.kind in ("engine", "anthropic")
        constrained = by_kind if self.constrained is None else self.constrained
        return None if constrained else self.call_retries


class ModelSettings(_Section):
    """A model name that clients may ask for.

    backends: tried in order before the first byte (fallback); upstream_name: its name there;
        upstream_names: at single backends, where it has another there.
    aliases: further names of the same model (Claude Code lists only names that begin "claude").
    """

    backends: list[str]
    upstream_name: str | None = None
    upstream_names: dict[str, str] = {}
    context_tokens: Positive | None = None
    aliases: list[str] = []
    price: PriceSettings = msgspec.field(default_factory=PriceSettings)


class StoreSettings(_Section):
    """The ledger. url: None is SQLite at ``data_dir/agentspec.db``.

    responses: where answers are kept that ``previous_response_id`` and ``item_reference`` refer to:
        "memory" (of each gateway worker) or "sql" (this database, for all workers).
    drain_rows: about the most rows of one transaction of the writer.
    keep_days: how long requests are kept (None: for good); keep_minutes_days: their sums by minute
        (those by hour and day stay); keep_payload_days: what was asked and answered.
    payloads: keep what was asked and answered at all, secrets blanked out.
    """

    url: str | None = None
    responses: Literal["memory", "sql"] = "memory"
    drain_interval_s: Seconds = 0.25
    drain_rows: Positive = 10_000
    keep_days: Days | None = None
    keep_minutes_days: Days = 30.0
    keep_payload_days: Days = 7.0
    payloads: bool = False


class Settings(_Section):
    """Everything. ``Settings()`` is the default: the embedded engine alone."""

    data_dir: str = "data"
    server: ServerSettings = msgspec.field(default_factory=ServerSettings)
    engine: EngineSettings = msgspec.field(default_factory=EngineSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    routing: RoutingSettings = msgspec.field(default_factory=RoutingSettings)
    telemetry: TelemetrySettings = msgspec.field(default_factory=TelemetrySettings)
    backends: dict[str, BackendSettings] = {}
    models: dict[str, ModelSettings] = {}

    @property
    def data_path(self) -> Path:
        return Path(self.data_dir)

    def make_data_dir(self, *below: str) -> Path:
        """Make the data folder, and a folder in it; returns that. Raises ``SettingsError``."""
        folder = self.data_path.joinpath(*below)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self.unusable(error) from None
        return folder

    def unusable(self, error: OSError) -> SettingsError:
        """An error met in the data folder, as one that the user can mend."""
        return SettingsError(f"the data folder {self.data_dir} cannot be used: {error.strerror}")

    @property
    def pools(self) -> dict[str, PoolSettings]:
        """What self-hosted backends cost, where that is known."""
        return {name: b.pool for name, b in self.backends.items() if b.pool is not None}

    @property
    def vendors(self) -> frozenset[str]:
        """The backends that are a vendor's."""
        return frozenset(name for name, b in self.backends.items() if b.kind in VENDOR_KINDS)

    @property
    def database_url(self) -> str:
        """The store's SQLAlchemy URL."""
        return self.store.url or f"sqlite:///{(self.data_path / 'agentspec.db').absolute()}"


def with_defaults(settings: Settings) -> Settings:
    """Fill in the embedded engine where no backend or model is configured; check names."""
    if not settings.backends:
        settings.backends = {"engine": BackendSettings(kind="engine")}
    for backend in settings.backends.values():
        if backend.kind == "engine" and backend.url is None:
            backend.url = _engine_url(settings.engine)
            backend.api_key_env = backend.api_key_env or settings.engine.api_key_env
    for name, backend in settings.backends.items():
        if backend.kind == "anthropic" and backend.url is None:
            backend.url = "https://api.anthropic.com"
        if backend.kind in ("openai", "sglang", "vllm", "llamacpp") and not backend.url:
            raise SettingsError(f"backends.{name}.url is required for kind '{backend.kind}'")
        if backend.url is not None and not is_http(backend.url):
            like = "http://HOST:PORT or https://HOST/v1"
            raise SettingsError(f"backends.{name}.url must be like {like}, not '{backend.url}'")
    if not settings.models:
        engines = [name for name, b in settings.backends.items() if b.kind == "engine"]
        if not engines:
            raise SettingsError("models: at least one model is required")
        settings.models = {
            settings.engine.model: ModelSettings(
                backends=engines[:1], context_tokens=settings.engine.context_tokens
            )
        }
    _check_names(settings)
    _add_aliases(settings.models)
    for name, model in settings.models.items():
        if not model.backends:
            raise SettingsError(f"models.{name}.backends must name at least one backend")
    named = [
        (f"models.{name}.{field}", backend)
        for name, model in settings.models.items()
        for field in ("backends", "upstream_names")
        for backend in getattr(model, field)
    ]
    for where, backend in (*named, *settings.routing.named()):
        if backend not in settings.backends:
            raise SettingsError(f"{where}: no backend named '{backend}'")
    return settings


def reachable(host: str) -> str:
    """An address at which this machine reaches what listens on ``host``."""
    return _WILDCARDS.get(host, host)


def _engine_url(engine: EngineSettings) -> str:
    host = reachable(engine.host)
    return f"http://[{host}]:{engine.port}" if ":" in host else f"http://{host}:{engine.port}"


def _check_names(settings: Settings) -> None:
    """Raises ``SettingsError`` for a model's name that no client could ask for."""
    named = [("engine.model", settings.engine.model)]
    for name, model in settings.models.items():
        named.append(("models", name))
        named += [(f"models.{name}.aliases", alias) for alias in model.aliases]
        if model.upstream_name is not None and not model.upstream_name.strip():
            raise SettingsError(f"models.{name}.upstream_name must not be empty")
    for key, name in named:
        if not _MODEL_NAME.fullmatch(name):
            raise SettingsError(
                f"{key}: {name[:200]!r} is no name for a model (1 to 200 characters, no spaces)"
            )


def check_engine(engine: EngineSettings) -> None:
    """Raises ``SettingsError`` where settings that are fine alone don't fit each other."""
    if engine.kv_tokens < engine.context_tokens:
        raise SettingsError(
            f"engine.kv_tokens ({engine.kv_tokens}) must be at least engine.context_tokens "
            f"({engine.context_tokens}): one request may need as many"
        )
    if engine.page_tokens > engine.context_tokens:
        raise SettingsError(
            f"engine.page_tokens ({engine.page_tokens}) must be at most engine.context_tokens "
            f"({engine.context_tokens})"
        )
    if engine.dtype == "int8" and engine.page_tokens != EXACT_PAGE_TOKENS:
        raise SettingsError(
            f"engine.page_tokens must be {EXACT_PAGE_TOKENS} where engine.dtype is 'int8', "
            f"not {engine.page_tokens}"
        )


def _add_aliases(models: dict[str, ModelSettings]) -> None:
    """Enter every alias as a model of its own. Raises ``SettingsError`` where a name is taken."""
    for name, model in list(models.items()):
        for alias in model.aliases:
            same = msgspec.structs.replace(
                model, upstream_name=model.upstream_name or name, aliases=[]
            )
            if models.setdefault(alias, same) != same:
                raise SettingsError(f"models.{name}.aliases: '{alias}' is a model already")


def load(path: str | Path | None = None) -> Settings:
    """Read a TOML file (None: defaults). Raises ``SettingsError`` naming the bad key."""
    if path is None:
        return Settings()
    try:
        raw = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from None
    try:
        settings = msgspec.convert(raw, Settings)
        check_engine(settings.engine)
        _check_names(settings)
    except (msgspec.ValidationError, SettingsError) as error:
        raise SettingsError(f"{path}: {error}") from None
    return settings


def secret(variable: str | None) -> str | None:
    """The secret held by an environment variable; None when none is named.

    Raises ``SettingsError`` when the variable is named but not set.
    """
    if variable is None:
        return None
    value = os.environ.get(variable)
    if not value:
        raise SettingsError(f"the environment variable {variable} (api_key_env) is not set")
    return value


def export(variable: str, value: str) -> None:
    """Set an environment variable, unless it is set, for a library that is configured by it."""
    os.environ.setdefault(variable, value)
