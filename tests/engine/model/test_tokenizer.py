"""Tokenizers from either kind of file against a BPE by hand, and what they say of themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.model.errors import TokenizerError, WeightsError
from agentspec.engine.tokenizer import Tokenizer
from tests.engine.model.tiny_vocabulary import BYTES, IDS, SIZE, SPECIALS, bpe
from tests.engine.model.tiny_vocabulary import write_folder as folder_of
from tests.engine.model.tiny_vocabulary import write_gguf as gguf_of


@pytest.fixture(scope="module", params=("gguf", "folder"))
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary")
    if request.param == "gguf":
        return Tokenizer.load(gguf_of(path / "v.gguf"))
    return Tokenizer.load(folder_of(path / "v"))


def test_the_bpe_by_hand_does_what_its_merges_say() -> None:
    pieces = [b" the", b"    ", b" ", b"1", b"2", b"3", b" ", b"\n", b"\n", b"in"]
    assert bpe(" the     123 \n\nin") == [IDS[piece] for piece in pieces]


@given(st.text("the in a123'sdmn\n\t.<|>_", max_size=60))
def test_ascii_text_has_the_ids_of_a_bpe_by_hand(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == bpe(text)


@given(st.text(max_size=80))
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.token_bytes[i] for i in ids) == text.encode()
    assert tokenizer.special_ids.isdisjoint(ids)


@given(st.lists(st.sampled_from([*SPECIALS, "the ", "<|im", "_end|>", "12", "ü", "\n"])))
def test_spelled_tokens_are_read_only_when_asked(tokenizer: Tokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    plain, special = tokenizer.encode(text), tokenizer.encode(text, special=True)
    assert tokenizer.decode(plain) == tokenizer.decode(special) == text
    assert tokenizer.special_ids.isdisjoint(plain)
    assert special == tokenizer.hf.encode(text, add_special_tokens=False).ids
    spelled = re.findall("|".join(map(re.escape, SPECIALS)), text)
    assert [i for i in special if i in tokenizer.special_ids] == [
        SPECIALS.index(token) for token in spelled
    ]


def test_what_it_says_of_itself(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == SIZE + 1
    assert tokenizer.token_bytes == [*(s.encode() for s in SPECIALS), *BYTES, b""]
    assert tokenizer.special_ids == {0, 1, 2, 3}


def test_what_ends_an_answer(tmp_path: Path) -> None:
    """By name in either file; a folder's generation_config.json may add more."""
    assert Tokenizer.from_gguf(gguf_of(tmp_path / "v.gguf")).eos_ids == {0, 2}
    assert Tokenizer.from_folder(folder_of(tmp_path / "v")).eos_ids == {0, 2, 3}


def test_bytes_that_are_no_text_become_replacement_characters(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([IDS[b"\xc3"], IDS[b"a"]]) == "\ufffda"


@pytest.mark.parametrize(
    ("options", "message"),
    (({"pre": "qwen2"}, "pre-tokenizer 'qwen2'"), ({"model": "llama"}, "tokenizer kind 'llama'")),
)
def test_an_unknown_kind_is_named(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.from_gguf(gguf_of(tmp_path / "v.gguf", **options))


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUFnonsense")
    with pytest.raises(WeightsError, match="bad.gguf"):
        Tokenizer.load(tmp_path / "bad.gguf")
    with pytest.raises(TokenizerError, match="tokenizer.json cannot be read"):
        Tokenizer.load(tmp_path)


def test_sentencepiece_spellings_become_bytes(tmp_path: Path) -> None:
    """A folder whose decoder is not byte-level: U+2581 is a space, <0x0A> a byte."""
    from tokenizers import Tokenizer as HfTokenizer
    from tokenizers import decoders, models

    vocabulary = {"<0x0A>": 0, "\u2581hi": 1, "<s>": 2}
    hf = HfTokenizer(models.BPE(vocabulary, []))
    hf.decoder = decoders.ByteFallback()  # pyright: ignore[reportAttributeAccessIssue]
    hf.add_special_tokens(["<s>"])
    hf.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.token_bytes == [b"\n", b" hi", b"<s>"]
    assert tokenizer.special_ids == {2}
