"""Runs in the peers' environment: greedy answers by transformers, one JSON line for each line.

Usage: ``python transformers_worker.py WEIGHTS.gguf THREADS``. In: ``{tokens, max_tokens, lookup,
script}``, script being the answer to write whatever the model would say, or empty. Out:
``{tokens, text, first, times_s}``: ``first`` tokens came with the first pass, ``times_s`` are
the seconds since the start at which each pass's tokens were known. bfloat16: faster on a CPU.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


class Clock:
    """What ``generate`` calls a streamer: told the prompt, then each pass's new tokens."""

    def __init__(self) -> None:
        self.start_s = time.perf_counter()
        self.times_s: list[float] = []
        self.counts: list[int] = []
        self._prompt_seen = False

    def put(self, value) -> None:
        if self._prompt_seen:
            self.times_s.append(time.perf_counter() - self.start_s)
            self.counts.append(value.numel())
        self._prompt_seen = True

    def end(self) -> None:
        return


def main() -> None:
    import torch
    import transformers  # pyright: ignore[reportMissingImports]

    weights = Path(sys.argv[1])
    torch.set_num_threads(int(sys.argv[2]))
    source = {"gguf_file": weights.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(weights.parent), **source)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(weights.parent), dtype=torch.bfloat16, **source
    ).eval()

    def prescribe(whole: list[int]):
        def process(input_ids, scores):
            if input_ids.shape[1] < len(whole):
                scores[:, whole[input_ids.shape[1]]] = torch.inf
            return scores

        return process

    def answer(tokens: list[int], max_tokens: int, lookup: int, script: list[int]) -> dict:
        ids, clock = torch.tensor([tokens]), Clock()
        more: dict = {"prompt_lookup_num_tokens": lookup} if lookup else {}
        if script:
            more["logits_processor"] = [prescribe(tokens + script)]
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max_tokens,
                do_sample=False,
                streamer=clock,
                pad_token_id=tokenizer.eos_token_id,
                **more,
            )
        new = out[0, len(tokens) :].tolist()
        first = clock.counts[0]
        return {
            "tokens": new,
            "text": tokenizer.decode(new),
            "first": first,
            "times_s": clock.times_s,
        }

    answer([1, 2, 3, 4], 4, 0, [])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(**json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
