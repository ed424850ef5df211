"""Two ways to have prompts answered: by our engine in this process, or by a server over HTTP."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentspec.settings import secret
from agentspec.toolcall.detect import format_for
from agentspec.toolcall.prompt import build_turns
from agentspec.wire.chat import ChatRequest, decode_request, encode
from agentspec.wire.errors import AgentspecError

from .config import RegenerateConfig
from .errors import TrainError
from .identity import key
from .prompts import Prompt
from .samples import Sample
from .target import Target

if TYPE_CHECKING:
    from agentspec.engine.request import Output

_TIMEOUT_S = 600.0
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer that is wanted. body: the whole chat request but its model."""

    id: str
    body: dict[str, Any]

    @property
    def constraining(self) -> dict[str, Any] | None:
        """What a sample keeps of the body."""
        fixed = self.body.get("tools") or self.body.get("response_format")
        return self.body if fixed else None

    @classmethod
    def of(cls, prompt: Prompt, number: int, config: RegenerateConfig) -> Asked:
        id = prompt.id if config.answers == 1 else f"{prompt.id}#{number}"
        sampling = {
            "temperature": config.temperature,
            "top_p": config.top_p,
            "top_k": config.top_k,
            "max_tokens": config.max_tokens,
            "seed": key(config.seed, id) % 2**31,
        }
        return cls(id, {**prompt.body, **sampling})


@dataclass(slots=True)
class _Growing:
    """An answer that is being generated."""

    asked: Asked
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def add(self, output: Output) -> None:
        self.tokens += [info.token for info in output.infos]
        self.text.append(output.text)

    def sample(self, finish_reason: str) -> Sample:
        return Sample(
            id=self.asked.id,
            ids=[*self.prompt, *self.tokens],
            prompt_tokens=len(self.prompt),
            finish_reason=finish_reason,
            text="".join(self.text),
            body=self.asked.constraining,
        )


class InProcess:
    """Our engine, planned as its server plans, without drafts that are still to be made."""

    def __init__(self, target: Target, config: RegenerateConfig):
        from agentspec.engine.build import build

        settings = target.settings
        settings.max_sequences = max(settings.max_sequences, config.concurrency)
        self._built = build(settings)
        self._config = config

    def answers(self, asked: Iterable[Asked]) -> Iterator[Sample | str]:
        """As one ends the next begins. Reasons are those that the server would give."""
        engine, coming = self._built.engine, iter(asked)
        growing: dict[str, _Growing] = {}
        more = True
        while more or growing:
            while more and len(growing) < self._config.concurrency:
                one = next(coming, None)
                if one is None:
                    more = False
                    break
                try:
                    self._begin(one, growing)
                except AgentspecError as error:
                    yield str(error)
            for output in engine.step() if growing else ():
                growing[output.id].add(output)
                if output.finish_reason is None:
                    continue
                done = growing.pop(output.id)
                if output.finish_reason in ("stop", "length"):
                    yield done.sample(output.finish_reason)
                else:
                    yield output.error or output.finish_reason

    def _begin(self, one: Asked, growing: dict[str, _Growing]) -> None:
        planner = self._built.planner
        # Log-probabilities are how an engine tells which tokens it emitted.
        extra = {"model": planner.model, "logprobs": True}
        request = decode_request(encode({**one.body, **extra}))
        sequence = planner.plan(request, time.monotonic()).sequences[0]
        self._built.engine.add(sequence)
        growing[sequence.id] = _Growing(one, list(sequence.prompt))


class Endpoint:
    """An OpenAI-compatible server. Its text is tokenised here, its calls as the target writes them.

    The tokens are those of the text, so the server must run the same model.
    """

    def __init__(self, target: Target, config: RegenerateConfig):
        self._target, self._config = target, config
        tokenizer = target.tokenizer
        self._format = format_for(
            target.settings.tool_format,
            target.name,
            target.path.name,
            template=tokenizer.template_source,
        )
        assert config.endpoint is not None
        self._url = config.endpoint.rstrip("/") + "/chat/completions"
        self._headers = {"Content-Type": "application/json"}
        if config.key_env is not None:
            self._headers["Authorization"] = f"Bearer {secret(config.key_env)}"

    def answers(self, asked: Iterable[Asked]) -> Iterator[Sample | str]:
        """``concurrency`` requests at a time. Raises ``TrainError`` where nobody listens."""
        with ThreadPoolExecutor(self._config.concurrency) as pool:
            waiting = [pool.submit(self._ask, one) for one in asked]
            try:
                for future in as_completed(waiting):
                    yield future.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _ask(self, one: Asked) -> Sample | str:
        model = self._config.model or self._target.name
        body = json.dumps({**one.body, "model": model}).encode()
        try:
            answer = self._post(body)
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}"
        choice = answer["choices"][0]
        try:
            return self._sample(one, choice)
        except AgentspecError as error:
            return str(error)

    def _post(self, body: bytes) -> dict[str, Any]:
        for attempt in range(_TRIES):
            request = urllib.request.Request(self._url, body, self._headers)
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                    return json.loads(response.read())
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    raise
                if attempt == _TRIES - 1:
                    raise
                time.sleep(2.0**attempt)
            except (urllib.error.URLError, TimeoutError) as error:
                raise TrainError(f"{self._url} cannot be reached: {error}") from None
        raise AssertionError("the last try returns or raises")

    def _sample(self, one: Asked, choice: dict[str, Any]) -> Sample:
        message = choice["message"]
        request = decode_request(encode({**one.body, "model": self._target.name}))
        answer = {"role": "assistant", "content": message.get("content") or ""}
        if message.get("tool_calls"):
            answer["tool_calls"] = message["tool_calls"]
        whole = {**one.body, "messages": [*one.body["messages"], answer]}
        answered = decode_request(encode({**whole, "model": self._target.name}))
        tokenizer = self._target.tokenizer
        prompt = tokenizer.render(self._turns(request))
        turns = self._turns(answered)
        text = turns[-1]["content"]
        ids = tokenizer.encode(text)
        if choice.get("finish_reason") != "length":
            ids.append(self._end(turns))
        return Sample(
            id=one.id,
            ids=[*prompt, *ids],
            prompt_tokens=len(prompt),
            finish_reason=choice.get("finish_reason"),
            text=text,
            body=one.constraining,
        )

    def _turns(self, request: ChatRequest) -> list[dict[str, str]]:
        return build_turns(request, self._format)

    def _end(self, turns: list[dict[str, str]]) -> int:
        """The token that the template writes behind an answer."""
        tokenizer = self._target.tokenizer
        ends = [i for i in tokenizer.render(turns, False) if i in tokenizer.eos_ids]
        return ends[-1] if ends else min(tokenizer.eos_ids)
