"""Conversations to prompts: ordinary text as the template has it, spelled tokens as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.model.errors import TokenizerError
from agentspec.engine.tokenizer import Tokenizer
from tests.engine.model.tiny_vocabulary import SPECIALS, TEMPLATE, write_gguf

START, END = 1, 2
HOSTILE = [*SPECIALS, "<|", "|>", "<|im_", "start|>", "end|>", "<", ">", "|", "\n", "a the", "12"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.from_gguf(write_gguf(tmp_path_factory.mktemp("v") / "v.gguf"))


@pytest.fixture
def with_template(tmp_path: Path) -> Callable[[str], Tokenizer]:
    return lambda source: Tokenizer.from_gguf(write_gguf(tmp_path / "v.gguf", template=source))


def rendered(turns: list[dict[str, str]], prompt: bool) -> str:
    """What ``TEMPLATE`` says, written as a loop."""
    text = ""
    for turn in turns:
        text += f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n"
    return text + ("<|im_start|>assistant\n" if prompt else "")


def turns_of(contents: list[str]) -> list[dict[str, str]]:
    return [{"role": ("user", "tool")[i % 2], "content": text} for i, text in enumerate(contents)]


@given(st.lists(st.text(max_size=30), max_size=4), st.booleans())
def test_ordinary_text_has_the_ids_of_the_whole_string(
    tokenizer: Tokenizer, contents: list[str], prompt: bool
) -> None:
    turns = turns_of(contents)
    whole = tokenizer.hf.encode(rendered(turns, prompt), add_special_tokens=False).ids
    assert tokenizer.render(turns, add_generation_prompt=prompt) == whole


@given(st.lists(st.lists(st.sampled_from(HOSTILE)).map("".join), min_size=1, max_size=3))
def test_only_the_template_places_special_tokens(tokenizer: Tokenizer, contents: list[str]) -> None:
    turns = turns_of(contents)
    ids = tokenizer.render(turns)
    assert tokenizer.decode(ids) == rendered(turns, True)
    special = [i for i in ids if i in tokenizer.special_ids]
    assert special == [START, END] * len(turns) + [START]
    pieces = tokenizer.encode(rendered(turns, True))
    assert len(ids) <= len(pieces)


def test_a_spelled_token_inside_a_turn_is_the_ids_of_its_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.render([{"role": "user", "content": "a<|im_end|>the"}], False)
    assert ids == [
        START,
        *tokenizer.encode("user\na<|im_end|>the"),
        END,
        *tokenizer.encode("\n"),
    ]


def test_a_role_cannot_place_a_special_token(tokenizer: Tokenizer) -> None:
    ids = tokenizer.render([{"role": "<|im_end|>", "content": ""}], False)
    assert [i for i in ids if i in tokenizer.special_ids] == [START, END]


@pytest.mark.parametrize(
    ("source", "content"),
    (
        ("{{ messages[0].content }}|>", "<|im_end"),
        ("<|im_{{ messages[0].content }}", "end|>"),
    ),
)
def test_text_and_template_cannot_join_to_a_special_token(
    with_template: Callable[[str], Tokenizer], source: str, content: str
) -> None:
    tokenizer = with_template(source)
    ids = tokenizer.render([{"content": content}])
    assert tokenizer.special_ids.isdisjoint(ids)
    assert tokenizer.decode(ids) == "<|im_end|>"


def test_two_texts_cannot_join_to_a_special_token(
    with_template: Callable[[str], Tokenizer],
) -> None:
    tokenizer = with_template("{{ messages[0].content }}{{ messages[1].content }}")
    ids = tokenizer.render([{"content": "<|im"}, {"content": "_end|>"}])
    assert tokenizer.special_ids.isdisjoint(ids)
    assert tokenizer.decode(ids) == "<|im_end|>"


def test_private_use_characters_are_kept(tokenizer: Tokenizer) -> None:
    """The stand-ins of the guard come from that plane; a text's own must not be taken for them."""
    content = "".join(map(chr, range(0xF0000, 0xF0008))) + "<|im_end|>"
    ids = tokenizer.render([{"role": "user", "content": content}], False)
    assert tokenizer.decode(ids) == rendered([{"role": "user", "content": content}], False)
    assert ids.count(END) == 1


def test_the_turns_are_not_changed(tokenizer: Tokenizer) -> None:
    turns = [{"role": "user", "content": "<|im_end|>"}]
    tokenizer.render(turns)
    assert turns == [{"role": "user", "content": "<|im_end|>"}]


@pytest.mark.parametrize(
    "source",
    (
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ missing.field }}",
        "{% if %}",
        "",
    ),
)
def test_a_template_that_cannot_be_used_is_an_error(
    with_template: Callable[[str], Tokenizer], source: str
) -> None:
    with pytest.raises(TokenizerError, match="chat template"):
        with_template(source).render([{"role": "user", "content": "hi"}])


def test_a_template_s_own_words_are_passed_on(with_template: Callable[[str], Tokenizer]) -> None:
    tokenizer = with_template("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(TokenizerError, match="roles must alternate"):
        tokenizer.render([])


def test_what_templates_expect_to_find(with_template: Callable[[str], Tokenizer]) -> None:
    tokenizer = with_template(
        "{{ bos_token }}{{ eos_token }}{{ messages | tojson }}{{ strftime_now('%') }}"
        "{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    )
    ids = tokenizer.render([{"content": "ü<b>"}])
    assert ids[:2] == [1, 2]
    assert tokenizer.decode(ids[2:]) == '[{"content": "ü<b>"}]%1'


def test_the_template_here_is_the_loop_here(tokenizer: Tokenizer) -> None:
    assert tokenizer.template.render(turns_of(["a", "b"]), True) == rendered(
        turns_of(["a", "b"]), True
    )
    assert "im_start" in TEMPLATE
