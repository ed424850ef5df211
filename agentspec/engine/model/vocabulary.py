"""A model's vocabulary as plain values, out of a GGUF file or a folder with a tokenizer.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gguf import TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from .errors import TokenizerError
from .gguf_header import GgufFile

END_OF_TURN = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "</s>",
)
"""Special tokens that end an answer in the chat formats in use, whatever a file calls its EOS."""

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Llama 3 cuts text before merging (its tokenizer.json)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """size: rows of the model's embedding. specials: spelling -> id of each control token.

    template: Jinja source or None; template_variables: bos_token, eos_token as far as known.
    """

    hf: Tokenizer
    size: int
    token_bytes: list[bytes]
    specials: dict[str, int]
    eos_ids: frozenset[int]
    template: str | None
    template_variables: Mapping[str, str] = field(default_factory=dict)


def from_gguf(path: Path) -> Vocabulary:
    """A byte-level BPE vocabulary. Raises ``TokenizerError`` or ``WeightsError``."""
    fields = GgufFile(path).fields

    def get(name: str) -> Any:
        return fields.get(f"tokenizer.{name}")

    if get("ggml.model") != "gpt2":
        raise TokenizerError(f"{path}: tokenizer kind '{get('ggml.model')}' is not supported")
    tokens: list[str] = get("ggml.tokens")
    kinds = get("ggml.token_type") or [TokenType.NORMAL] * len(tokens)
    hf = _byte_level_bpe(tokens, get("ggml.merges"), get("ggml.pre"), path)
    specials = {t: i for i, t in enumerate(tokens) if kinds[i] == TokenType.CONTROL}
    added = {t: i for i, t in enumerate(tokens) if kinds[i] == TokenType.USER_DEFINED}
    hf.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    hf.add_tokens([AddedToken(t, special=False, normalized=False) for t in added])
    spelled = specials.keys() | added.keys()
    token_bytes = [
        b"" if kind == TokenType.UNUSED else _bytes_of(token, spelled)
        for token, kind in zip(tokens, kinds, strict=True)
    ]
    ends = [get("ggml.eos_token_id"), get("ggml.eot_token_id"), get("ggml.eom_token_id")]
    names = {"bos_token": get("ggml.bos_token_id"), "eos_token": get("ggml.eos_token_id")}
    return Vocabulary(
        hf=hf,
        size=len(tokens),
        token_bytes=token_bytes,
        specials=specials,
        eos_ids=_eos_ids(ends, specials),
        template=get("chat_template"),
        template_variables={k: tokens[i] for k, i in names.items() if i is not None},
    )


def from_folder(path: Path) -> Vocabulary:
    """The vocabulary of a folder's tokenizer.json. Raises ``TokenizerError``."""
    try:
        hf = Tokenizer.from_file(str(path / "tokenizer.json"))
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(f"{path / 'tokenizer.json'} cannot be read: {error}") from None
    hf.no_truncation()
    hf.no_padding()
    config, settings = _json(path / "config.json"), _json(path / "tokenizer_config.json")
    added = hf.get_added_tokens_decoder()
    specials = {token.content: i for i, token in added.items() if token.special}
    known = hf.get_vocab_size(with_added_tokens=True)
    text = config | config.get("text_config", {})
    size = max(int(text.get("vocab_size") or 0), known)
    byte_level = '"ByteLevel"' in json.dumps(json.loads(hf.to_str()).get("decoder"))
    spelled = {token.content for token in added.values()}
    tokens = [hf.id_to_token(i) for i in range(size)]
    bytes_of = _bytes_of if byte_level else _sentencepiece_bytes
    ends: list[int | None] = [*_listed(config.get("eos_token_id"))]
    ends += _listed(_json(path / "generation_config.json").get("eos_token_id"))
    names = {k: _spelling(settings.get(k)) for k in ("bos_token", "eos_token")}
    ends.append(specials.get(names["eos_token"] or ""))
    return Vocabulary(
        hf=hf,
        size=size,
        token_bytes=[b"" if t is None else bytes_of(t, spelled) for t in tokens],
        specials=specials,
        eos_ids=_eos_ids(ends, specials),
        template=_template(path, settings),
        template_variables={k: v for k, v in names.items() if v},
    )


def _byte_level_bpe(tokens: list[str], merges: list[str], pre: str | None, path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file, whose ``pre`` names how text is cut before merging."""
    whole_words = pre == "llama-bpe"
    hf = Tokenizer(
        models.BPE(
            {token: i for i, token in enumerate(tokens)},
            [tuple(merge.split(" ", 1)) for merge in merges],  # pyright: ignore[reportArgumentType]
            ignore_merges=whole_words,
        )
    )
    if pre == "smollm":
        cut = pre_tokenizers.Digits(individual_digits=True)
    elif pre == "llama-bpe":
        cut = pre_tokenizers.Split(Regex(_LLAMA3), "isolated")
    elif pre in ("gpt-2", "gpt2"):
        cut = None
    else:
        raise TokenizerError(f"{path}: pre-tokenizer '{pre}' is not supported")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not whole_words)
    hf.pre_tokenizer = pre_tokenizers.Sequence([cut, to_bytes]) if cut else to_bytes  # pyright: ignore
    hf.decoder = decoders.ByteLevel()  # pyright: ignore
    return hf


def _byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-in of each byte: itself where printable, else from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_of_character()


def _bytes_of(token: str, spelled: Iterable[str]) -> bytes:
    """Bytes of a byte-level token; a token in ``spelled`` stands for its own spelling."""
    if token in spelled:
        return token.encode()
    try:
        return bytes(_BYTE_OF[character] for character in token)
    except KeyError:
        return token.encode()


def _sentencepiece_bytes(token: str, spelled: Iterable[str]) -> bytes:
    """Bytes of a SentencePiece token: "<0x0A>" is a byte, U+2581 a space."""
    if token in spelled:
        return token.encode()
    if re.fullmatch(r"<0x[0-9A-F]{2}>", token):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode()


def _eos_ids(ids: Iterable[int | None], specials: Mapping[str, int]) -> frozenset[int]:
    named = {specials[name] for name in END_OF_TURN if name in specials}
    return frozenset(named | {int(i) for i in ids if i is not None})


def _template(path: Path, settings: Mapping[str, Any]) -> str | None:
    """The chat template of a folder: a file of its own, else the tokenizer's configuration."""
    if (path / "chat_template.jinja").is_file():
        return (path / "chat_template.jinja").read_text()
    found = settings.get("chat_template")
    if isinstance(found, list):
        found = {entry["name"]: entry["template"] for entry in found}.get("default")
    return found


def _spelling(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token


def _listed(value: Any) -> list[int]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; {} when there is no such file. Raises ``TokenizerError``."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise TokenizerError(f"{path} cannot be read: {error}") from None
