"""A chat request -> what the engine is to generate, and how its outputs are to be read.

Read next: ``validate.py`` (rules of single fields), ``answer.py`` (the way back).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence as Seq
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from agentspec.toolcall.choice import OutputSpec, output_spec
from agentspec.toolcall.marks import Marks, special_spellings
from agentspec.toolcall.native import Native
from agentspec.toolcall.prompt import tools_saved_chars
from agentspec.wire.chat import ChatRequest, FunctionDef, Message, Tool
from agentspec.wire.errors import AgentspecError, ContextLengthExceeded, InvalidRequest
from agentspec.wire.extension import SpecRequest
from agentspec.wire.nesting import depth_of, too_deep
from agentspec.wire.service import TokenizeRequest, TokenizeResponse

from . import validate
from .completion import completion_prompt
from .reading import Reading
from .request import GenerationRequest
from .sampling import Entropy, SamplingParams
from .showing import Showing

if TYPE_CHECKING:
    from agentspec.toolcall.format import ToolFormat

    from .constrain import CompiledConstraint


_TOKENIZE_CONTEXTS = 4
"""``/tokenize`` counts what does not fit, too, within reason: so many times the context."""


_PROMPT_END_TOKENS = 16


class TextTokenizer(Protocol):
    """What planning asks of ``tokenizer.Tokenizer``."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def token_bytes(self) -> Seq[bytes]: ...
    @property
    def special_ids(self) -> frozenset[int]: ...
    @property
    def eos_ids(self) -> frozenset[int]: ...

    def render(self, turns: list, *, tools: Seq[dict[str, Any]] = ()) -> list[int]: ...
    def native(self, fmt: ToolFormat) -> Native | None: ...
    def encode(self, text: str, special: bool = False) -> list[int]: ...


class Compiler(Protocol):
    def compile(self, spec: OutputSpec) -> CompiledConstraint: ...


@dataclass(slots=True, kw_only=True)
class Turn:
    """One planned chat turn: a sequence a choice, and what the answer needs to know.

    arrival_s: ``time.monotonic()`` second at which the request came in.
    max_tokens_clamped: the limit that was applied because the caller's did not fit, else None.
    tools_saved_chars: by how much the prompt's text of the tools is shorter than they are.
    """

    id: str
    created: int
    model: str
    sequences: list[GenerationRequest]
    prompt_tokens: int
    reading: Reading
    token_bytes: Seq[bytes]
    stream: bool
    logprobs: bool
    include_usage: bool
    running_usage: bool
    wants_report: bool
    arrival_s: float
    arm: str | None = None
    max_tokens_clamped: int | None = None
    tools_saved_chars: int = 0


class Planner:
    """Plans turns for one engine. Thread-safe where its tokenizer and compiler are."""

    def __init__(
        self,
        *,
        model: str,
        context_tokens: int,
        tokenizer: TextTokenizer,
        tool_format: ToolFormat,
        compiler: Compiler,
        sources: Seq[str] = (),
    ):
        self.model = model
        self.context_tokens = context_tokens
        self.sources = tuple(sources)
        self._tokenizer = tokenizer
        self._format = tool_format
        self._compiler = compiler
        special = special_spellings(tokenizer.token_bytes, tokenizer.special_ids, tokenizer.eos_ids)
        self._marks = Marks.of(tool_format, special)
        self._showing = Showing(tokenizer, tool_format)
        self._longest_token = max(map(len, tokenizer.token_bytes))

    def compiling(self, compiler: Compiler) -> Planner:
        """A planner like this one with another compiler; for measuring."""
        twin = copy(self)
        twin._compiler = compiler
        return twin

    def warm(self) -> None:
        """Plan a turn with a tool for nobody: what is built at first use is there for the first."""
        tool = Tool(FunctionDef("warm", "-", {"type": "object", "properties": {}}))
        request = ChatRequest(model=self.model, messages=[Message("user", "-")], tools=[tool])
        with suppress(AgentspecError):
            self.plan(request, time.monotonic())

    def turns(self, request: ChatRequest) -> list[dict[str, str]]:
        """What the model is shown of a chat request, tools included: role and content."""
        return self._showing.turns(request)

    def plan(self, request: ChatRequest, arrival_s: float) -> Turn:
        """Check a request, plan its sequences, compile its grammar (so not on an event loop).

        Raises ``InvalidRequest`` (or a kind of it) naming the field.
        """
        try:
            return self._plan(request, arrival_s)
        except RecursionError:
            raise too_deep(_deepest_field(request)) from None

    def _plan(self, request: ChatRequest, arrival_s: float) -> Turn:
        validate.check_model(request.model, self.model)
        asked = request.agentspec or SpecRequest()
        first = self._checked(request, asked, arrival_s)
        spec = output_spec(request, self._format)
        first.prompt = self._prompt(request, asked)
        first.max_tokens, clamped = self._budget(request, len(first.prompt))
        if spec is not None:
            first.constraint = self._compiler.compile(spec)
        reading = Reading.of(
            request,
            self._format,
            spec,
            in_reasoning=self._begins_in_reasoning(first.prompt),
            marks=self._marks,
        )
        if not reading.plain:
            first.marks = self._marks.characters
        return Turn(
            id=first.id,
            created=int(time.time()),
            model=self.model,
            sequences=_choices(first, validate.choice_count(request)),
            prompt_tokens=len(first.prompt),
            reading=reading,
            token_bytes=self._tokenizer.token_bytes,
            stream=bool(request.stream),
            logprobs=first.logprobs is not None,
            include_usage=request.wants_usage_chunk,
            running_usage=request.wants_running_usage,
            wants_report=request.agentspec is not None,
            arrival_s=arrival_s,
            arm=asked.arm,
            max_tokens_clamped=clamped,
            tools_saved_chars=0 if asked.raw else tools_saved_chars(request, self._format),
        )

    def _checked(
        self, request: ChatRequest, asked: SpecRequest, arrival_s: float
    ) -> GenerationRequest:
        """The sequence of choice 0, all but its prompt, limit and constraint."""
        validate.check_extension(asked)
        validate.check_token_limits(request)
        validate.choice_count(request)
        deadline_s = None if asked.deadline_ms is None else arrival_s + asked.deadline_ms / 1000
        return GenerationRequest(
            id=f"chatcmpl-{uuid.uuid4().hex}",
            prompt=[],
            max_tokens=0,
            sampling=validate.sampling_params(request, self._tokenizer.vocab_size),
            stop=validate.stop_strings(request),
            stop_ids=frozenset(self._tokenizer.eos_ids),
            sources=validate.draft_sources(asked, self.sources),
            cache_scope=asked.cache_scope or "",
            session=asked.session,
            priority=asked.priority,
            deadline_s=deadline_s,
            logprobs=validate.logprob_count(request),
        )

    def _prompt(self, request: ChatRequest, asked: SpecRequest) -> list[int]:
        """The prompt's tokens. Raises ``ContextLengthExceeded`` where no token fits behind it."""
        self._check_size(sum(len(message.text()) for message in request.messages))
        if asked.raw:
            text = request.messages[-1].text()
            prompt = completion_prompt(self._tokenizer, text, asked.suffix)
        else:
            prompt = self._showing.tokens(request)
        if len(prompt) > self.context_tokens - 1:
            raise ContextLengthExceeded.of(len(prompt), self.context_tokens)
        return prompt

    def _check_size(self, characters: int) -> None:
        """Refuse what cannot fit, before tokens of megabytes are made: a token covers so much."""
        least = characters // self._longest_token
        if least >= self.context_tokens:
            raise ContextLengthExceeded.of(least, self.context_tokens, at_least=True)

    def _begins_in_reasoning(self, prompt: list[int]) -> bool:
        """Whether the template has opened the model's reasoning: it does so at the prompt's end."""
        end = b"".join(self._tokenizer.token_bytes[token] for token in prompt[-_PROMPT_END_TOKENS:])
        return self._format.begins_in_reasoning(end.decode("utf-8", "replace"))

    def _budget(self, request: ChatRequest, prompt_tokens: int) -> tuple[int, int | None]:
        """(output limit, the same where it is less than the caller asked for)."""
        fits = self.context_tokens - prompt_tokens
        wanted = request.token_limit
        if wanted is None or wanted == fits:
            return fits, None
        return (wanted, None) if wanted < fits else (fits, fits)

    def tokenize(self, request: TokenizeRequest) -> TokenizeResponse:
        """Tokens of a plain prompt, or of messages and tools as a chat turn would show them."""
        validate.check_model(request.model, self.model)
        if request.messages:
            self._check_size(sum(len(m.text()) for m in request.messages) // _TOKENIZE_CONTEXTS)
            chat = ChatRequest(model=self.model, messages=request.messages, tools=request.tools)
            tokens = self._showing.tokens(chat)
        elif request.prompt is not None:
            self._check_size(len(request.prompt) // _TOKENIZE_CONTEXTS)
            tokens = self._tokenizer.encode(request.prompt)
        else:
            raise InvalidRequest(
                "Missing required parameter: 'prompt' (or 'messages').",
                param="prompt",
                code="missing_required_parameter",
            )
        return TokenizeResponse(
            count=len(tokens), max_model_len=self.context_tokens, tokens=list(tokens)
        )


def _deepest_field(request: ChatRequest) -> str:
    """The path of the schema that went too deep for the functions that walk it."""
    depths = {
        f"tools[{index}].function.parameters": depth_of(tool.function.parameters)
        for index, tool in enumerate(request.tools or ())
    }
    wanted = request.response_format
    if wanted is not None and wanted.json_schema is not None:
        depths["response_format.json_schema.schema"] = depth_of(wanted.json_schema.schema)
    return max(depths, key=depths.__getitem__, default="messages")


def _choices(first: GenerationRequest, count: int) -> list[GenerationRequest]:
    """``count`` sequences alike but for their ids and, where one is given, their seeds."""
    return [
        replace(
            first,
            id=f"{first.id}-{i}",
            prompt=list(first.prompt),
            sampling=replace(first.sampling, seed=_nth_seed(first.sampling, i)),
        )
        for i in range(count)
    ]


def _nth_seed(sampling: SamplingParams, index: int) -> int | None:
    """Choice 0 keeps the seed, as if it were alone; the noise of the others must differ."""
    return None if sampling.seed is None else Entropy.of(sampling.seed, index).key
