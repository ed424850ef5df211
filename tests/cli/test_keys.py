"""``agentspec keys`` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentspec import cli


@pytest.fixture
def keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Runs a command; returns (exit status, standard output, standard error)."""

    def run(*words: str) -> tuple[int, str, str]:
        status = cli.main(["keys", *words, "--data-dir", str(tmp_path / "data")])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def one(keys, name: str) -> dict:
    status, out, _ = keys("show", name, "--json")
    assert status == 0
    return json.loads(out)


def test_the_secret_alone_is_on_standard_output(keys):
    status, out, err = keys("create", "laptop")
    secret = out.strip()
    assert status == 0 and secret.startswith("as-") and len(secret.split()) == 1
    assert secret not in err and "not shown again" in err
    for words in (("list",), ("show", "laptop"), ("list", "--json")):
        assert secret not in "".join(keys(*words)[1:])


def test_a_key_from_creation_to_its_end(keys):
    keys("project", "create", "team", "--usd-month", "50")
    keys("create", "k", "--project", "team", "--rpm", "60", "--usd-day", "2.5", "--models", "a,b")
    found = one(keys, "k")
    assert (found["state"], found["project"], found["models"]) == ("active", "team", ["a", "b"])
    assert found["limits"] == [
        {"kind": "rpm", "limit": 60, "used": 0, "held": 0},
        {"kind": "usd_day", "limit_nusd": 2_500_000_000, "used_nusd": 0, "held_nusd": 0},
    ]
    keys("limit", "k", "--rpm", "none", "--tpm", "1000")
    assert [limit["kind"] for limit in one(keys, "k")["limits"]] == ["tpm", "usd_day"]
    keys("set", "k", "--models", "all", "--cache-scope", "project", "--operator", "yes")
    found = one(keys, "k")
    assert (found["models"], found["cache_scope"]) == (None, "project:team")
    assert found["operator"] is True
    _, secret, _ = keys("rotate", "k", "--grace", "1h")
    assert secret.startswith("as-")
    assert "is revoked" in keys("revoke", "k")[1]
    assert one(keys, "k")["state"] == "revoked"
    projects = json.loads(keys("project", "list", "--json")[1])
    assert [(p["name"], p["keys"], p["limits"][0]["kind"]) for p in projects] == [
        ("team", 1, "usd_month")
    ]


@pytest.mark.parametrize(
    ("dollars", "shown"),
    [
        ("0", "$0.00"),
        ("1e-9", "$0.000000001"),
        ("0.00012345", "$0.000123"),
        ("0.005", "$0.005"),
        ("0.5", "$0.50"),
        ("0.9999", "$1.00"),
        ("12.5", "$12.50"),
        ("1234567.891", "$1,234,567.89"),
    ],
)
def test_a_small_budget_is_shown_as_what_it_is(keys, dollars, shown):
    assert keys("create", "k", "--usd-day", dollars)[0] == 0
    assert keys("list")[1].endswith(f"usd_day $0.00 of {shown}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "nobody"), "there is no key 'nobody'"),
        (("create", "k", "--project", "none"), "there is no project 'none'"),
        (("create", "k", "--cache-scope", "project"), "without a project"),
        (("project", "limit", "none", "--rpm", "1"), "there is no project 'none'"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(keys, words, told):
    assert keys("project", "create", "team")[0] == 0  # which makes the ledger, too
    status, out, err = keys(*words)
    assert (status, out) == (2, "") and told in err and err.count("\n") == 1


@pytest.mark.parametrize("what", [("create",), ("project", "create")])
def test_a_bad_limit_makes_nothing(keys, what):
    status, out, err = keys(*what, "k", "--rpm", "5", "--tpm", "9" * 30)
    assert (status, out) == (2, "") and "tpm must be between 0 and" in err
    assert keys("list", "--json")[1].strip() == "[]"
    assert keys("project", "list", "--json")[1].strip() == "[]"
    assert keys(*what, "k", "--rpm", "5", "--tpm", "9")[0] == 0
    listed = ("list", "--json") if len(what) == 1 else ("project", "list", "--json")
    (found,) = json.loads(keys(*listed)[1])
    assert [(limit["kind"], limit["limit"]) for limit in found["limits"]] == [
        ("rpm", 5),
        ("tpm", 9),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("create", "k", "--usd-day", "much"),
        ("create", "k", "--usd-day", "-1"),
        ("create", "k", "--usd-day", "1e-10"),
        ("create", "k", "--usd-total", "0.0000000009"),
        ("create", "k", "--rpm", "1.5"),
        ("create", "k", "--expires", "soon"),
        ("create", "k", "--models", ","),
        ("rotate", "k", "--grace", "1y"),
    ],
)
def test_bad_values_name_their_option(keys, words, capsys):
    with pytest.raises(SystemExit) as stop:
        keys(*words)
    assert stop.value.code == 2 and words[-2] in capsys.readouterr().err
