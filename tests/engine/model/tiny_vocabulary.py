"""A small byte-level BPE vocabulary, its files, and the same BPE written out by hand on bytes.

Its merges hold digits and pieces of a special token's spelling, so that cutting digits apart and
keeping spelled tokens apart both matter.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import gguf

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>")
MERGES = (
    (b"t", b"h"),
    (b"th", b"e"),
    (b" ", b"the"),
    (b"i", b"n"),
    (b" ", b"a"),
    (b"1", b"2"),
    (b"12", b"3"),
    (b" ", b" "),
    (b"  ", b"  "),
    (b"in", b"g"),
    (b"<", b"|"),
    (b"|", b">"),
    (b"i", b"m"),
    (b"im", b"_"),
    (b"e", b"n"),
    (b"en", b"d"),
    (b"\n", b"\n"),
    ("ü".encode()[:1], "ü".encode()[1:]),
)
BYTES = [bytes([b]) for b in range(256)] + [a + b for a, b in MERGES]
IDS = {piece: len(SPECIALS) + i for i, piece in enumerate(BYTES)}
SIZE = len(SPECIALS) + len(BYTES)
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def bpe(text: str) -> list[int]:
    """Ids of ASCII text: each digit apart, GPT-2's words, then the best-ranked merge first."""
    ids = []
    for part in re.split(r"([0-9])", text):
        for word in _WORDS.findall(part):
            pieces = [bytes([b]) for b in word.encode()]
            while ranked := [m for m in MERGES if m in zip(pieces, pieces[1:], strict=False)]:
                first, second = ranked[0]
                joined: list[bytes] = []
                while pieces:
                    pair = pieces[:2] == [first, second]
                    joined.append(first + second if pair else pieces[0])
                    pieces = pieces[2 if pair else 1 :]
                pieces = joined
            ids.extend(IDS[piece] for piece in pieces)
    return ids


def _stand_in(piece: bytes) -> str:
    """GPT-2's printable spelling of bytes: 0-32, 127-160 and 173 are moved to U+0100 and up."""
    moved = [*range(33), *range(127, 161), 173]
    return "".join(chr(256 + moved.index(b)) if b in moved else chr(b) for b in piece)


def write_gguf(
    path: Path, pre: str = "smollm", model: str = "gpt2", template: str = TEMPLATE
) -> Path:
    """A GGUF file without tensors that holds the vocabulary; one unused token at its end."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*SPECIALS, *map(_stand_in, BYTES), "[PAD]"])
    kinds = [gguf.TokenType.CONTROL] * len(SPECIALS) + [gguf.TokenType.NORMAL] * len(BYTES)
    writer.add_token_types([*kinds, gguf.TokenType.UNUSED])
    writer.add_token_merges([f"{_stand_in(a)} {_stand_in(b)}" for a, b in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if template:
        writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_folder(path: Path) -> Path:
    """A folder with the vocabulary as Hugging Face's files, padded by one token in config.json."""
    path.mkdir(exist_ok=True)
    added = [
        {"id": i, "content": text, "special": True, "single_word": False, "lstrip": False}
        | {"rstrip": False, "normalized": False}
        for i, text in enumerate(SPECIALS)
    ]
    vocabulary = {text: i for i, text in enumerate(SPECIALS)}
    vocabulary |= {_stand_in(piece): IDS[piece] for piece in BYTES}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    byte_level["use_regex"] = True
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": [f"{_stand_in(a)} {_stand_in(b)}" for a, b in MERGES],
        },
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "config.json").write_text(json.dumps({"vocab_size": SIZE + 1, "eos_token_id": 2}))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    settings = {"chat_template": TEMPLATE, "eos_token": "<|im_end|>", "bos_token": {"content": "x"}}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path
