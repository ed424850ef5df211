"""Names of methods and drafts on the command line; what is not there is named."""

from __future__ import annotations

import pytest

from agentspec import cli
from agentspec.bench.compare.methods import parse_drafts, parse_methods
from agentspec.bench.workloads import BenchError


def test_all_there_are():
    names = [m.name for m in parse_methods([], ["dflash", "dspark"])]
    assert names == ["none", "forced", "unforced", "suffix", "suffix_tree", "ngram"] + [
        *("dflash", "dspark", "all")
    ]
    assert parse_methods(["all"], ["dflash", "dspark"])[1].sources == ("suffix", "dspark")
    assert parse_methods(["all"], ["eagle3"])[1].sources == ("suffix", "eagle3")
    assert parse_methods(["ngram+mtp"], ["mtp"])[1].sources == ("ngram", "mtp")


def test_plain_decoding_is_always_there_and_once():
    assert [m.name for m in parse_methods(["suffix", "none"], [])] == ["none", "suffix"]


@pytest.mark.parametrize("word", ["dspark", "suffix+dspark", "x"])
def test_an_unknown_method(word: str):
    with pytest.raises(BenchError, match="no method"):
        parse_methods([word], ["eagle3"])


@pytest.mark.parametrize("words", [["dspark"], ["=p"], ["a="], ["suffix=p"], ["a=p", "a=q"]])
def test_bad_drafts(words: list[str]):
    with pytest.raises(BenchError, match="--drafts"):
        parse_drafts(words)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--methods", "dspark"], "no method 'dspark'"),
        (["--workloads", "poems"], "no workload 'poems'"),
        (["--schedule", "fast"], "unknown mode 'fast'"),
        (["--schedule", "off"], "--schedule off"),
        (["--n", "5000"], "5000"),
        (["--training", "/nowhere/prompts.jsonl"], "/nowhere/prompts.jsonl"),
    ],
)
def test_what_is_not_there_is_said(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["compare", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--temperature", "3"], ["--n", "0"], ["--samples", "x"]])
def test_bad_numbers(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["compare", *arguments])
    assert arguments[0] in capsys.readouterr().err
