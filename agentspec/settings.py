"""The one settings object, from one TOML file and the command line. Leaf module: imports no room.

An unknown key or a bad value is a ``SettingsError`` that names it. Secrets are never written in the
file: a key is given by the name of the environment variable that holds it (``api_key_env``).
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[int, Meta(gt=0)]
Seconds = Annotated[float, Meta(gt=0)]

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_CONTEXT_TOKENS = 8192


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

    weights: a GGUF file or a safetensors folder; None: the embedded model.
    dtype: "int8": our exact CPU kernels (weights as stored in 4 or 8 bits, int8 activations);
        "bf16", "fp32", "fp64": stock torch; "auto": int8 where it can run, else bf16.
    rope_scale: above 1.0, a window of that many times the model's positions, which costs quality
        (``bench quality`` shows how much); ``context_tokens`` may then be as large.
        rope_scaling: how positions are stretched.
    kv_tokens: size of the K/V pool; step_tokens: most rows of one forward pass (chunked prefill).
    draft_sources: draft sources that may be used, in order of preference.
    """

    host: str = "127.0.0.1"
    port: Port = 8001
    model: str = DEFAULT_MODEL
    weights: str | None = None
    tool_format: str = "smollm2"
    dtype: Literal["auto", "int8", "bf16", "fp32", "fp64"] = "auto"
    threads: int = 0
    context_tokens: Positive = DEFAULT_CONTEXT_TOKENS
    rope_scale: Annotated[float, Meta(ge=1.0, le=64.0)] = 1.0
    rope_scaling: Literal["ntk", "linear"] = "ntk"
    kv_tokens: Positive = 24576
    page_tokens: Positive = 16
    max_sequences: Positive = 16
    max_waiting: Positive = 256
    step_tokens: Positive = 512
    draft_sources: list[str] = msgspec.field(default_factory=lambda: ["suffix"])
    max_draft_tokens: int = 16
    constraint_backend: Literal["llguidance", "outlines"] = "llguidance"


class PriceSettings(_Section):
    """Prices of one model, US dollars per million tokens."""

    input_usd_per_m: float = 0.0
    cached_usd_per_m: float | None = None
    output_usd_per_m: float = 0.0


class BackendSettings(_Section):
    """A place where requests can run.

    kind: "engine" (ours), "openai" (any OpenAI-compatible URL), "litellm" (a commercial API).
    """

    kind: Literal["engine", "openai", "litellm"]
    url: str | None = None
    api_key_env: str | None = None
    connect_timeout_s: Seconds = 5.0
    first_byte_timeout_s: Seconds = 600.0
    idle_timeout_s: Seconds = 120.0
    host_usd_per_h: float = 0.0


class ModelSettings(_Section):
    """A model name that clients may ask for.

    backends: tried in order before the first byte (fallback); upstream_name: its name there.
    aliases: further names of the same model (Claude Code lists only names that begin "claude").
    """

    backends: list[str]
    upstream_name: str | None = None
    context_tokens: Positive | None = None
    aliases: list[str] = []
    price: PriceSettings = msgspec.field(default_factory=PriceSettings)


class StoreSettings(_Section):
    """The ledger. url: None is SQLite at ``data_dir/agentspec.db``.

    responses: where answers are kept that ``previous_response_id`` and ``item_reference`` refer to:
        "memory" (of each gateway worker) or "sql" (this database, for all workers).
    """

    url: str | None = None
    drain_interval_s: Seconds = 0.25
    drain_rows: Positive = 500


class Settings(_Section):
    """Everything. ``Settings()`` is the default: the embedded engine alone."""

    data_dir: str = "data"
    server: ServerSettings = msgspec.field(default_factory=ServerSettings)
    engine: EngineSettings = msgspec.field(default_factory=EngineSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    backends: dict[str, BackendSettings] = {}
    models: dict[str, ModelSettings] = {}
    responses: Literal["memory", "sql"] = "memory"

    @property
    def data_path(self) -> Path:
        return Path(self.data_dir)

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
            backend.url = f"http://{settings.engine.host}:{settings.engine.port}"
    for name, backend in settings.backends.items():
        if backend.kind == "openai" and not backend.url:
            raise SettingsError(f"backends.{name}.url is required for kind 'openai'")
    if not settings.models:
        engines = [name for name, b in settings.backends.items() if b.kind == "engine"]
        if not engines:
            raise SettingsError("models: at least one model is required")
        settings.models = {
            settings.engine.model: ModelSettings(
                backends=engines[:1], context_tokens=settings.engine.context_tokens
            )
        }
    _add_aliases(settings.models)
    for name, model in settings.models.items():
        if not model.backends:
            raise SettingsError(f"models.{name}.backends must name at least one backend")
        for backend in model.backends:
            if backend not in settings.backends:
                raise SettingsError(f"models.{name}.backends: no backend named '{backend}'")
    return settings


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
        return msgspec.convert(raw, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path}: {error}") from None


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
