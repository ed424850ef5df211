"""From a situation to a decision: who may be asked, who is weighed, what is logged."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from agentspec.backends.capabilities import ALL, Abilities
from agentspec.backends.load import Load
from agentspec.routing.circuit import Circuits
from agentspec.routing.decision import Situation
from agentspec.routing.estimate import Estimator
from agentspec.routing.explain import explain
from agentspec.routing.learned import Learned, Pacer
from agentspec.routing.outcome import Outcome, Target
from agentspec.routing.policy import Cheapest, Fastest, Fixed, Policy
from agentspec.routing.router import Router, Rules
from agentspec.routing.sessions import Sessions
from agentspec.routing.taskclass import TaskClass
from agentspec.routing.watch import Seen, Watch
from agentspec.wire.errors import PermissionDenied, UpstreamUnreachable

TASK = TaskClass("tool", "codex")
NAMES = ("a", "b", "c")


class World:
    def __init__(self, policy: Policy, rules: Rules | None = None, **more: Any):
        self.now_s = 1000.0
        self.circuits = Circuits(lambda: self.now_s)
        self.watch = Watch({}, 1.0)
        self.router = Router(
            policy,
            Estimator(50.0, Target(2.0, 0.05)),
            Sessions(600.0),
            self.circuits,
            clock_s=lambda: self.now_s,
            rules=rules,
            watch=self.watch,
            **more,
        )

    def learn(self, backend: str, count: int = 20, session: str = "", **more: Any) -> None:
        fields = {"in_tok": 10_000, "out_tok": 100, "ttft_s": 0.5, "token_s": 0.02, "load": 0.0}
        fields |= {"fresh_nusd": 10**7, "cached_nusd": 0, "out_nusd": 10**6}
        for _ in range(count):
            self.router.note(
                Outcome(backend, TASK, "m", session, self.now_s, **(fields | more))  # type: ignore[arg-type]
            )

    def decide(self, session: str = "s", **more: Any):
        fields = {"task": TASK, "guess_tok": 10_000} | more
        names = fields.pop("backends", NAMES)
        return self.router.decide(Situation("m", session, "tool", names, **fields))


def test_one_backend_is_no_choice():
    world = World(Cheapest())
    world.circuits.failed("a", UpstreamUnreachable("x"))
    decision = world.decide(backends=("a",))
    assert decision.order == ("a",) and decision.reason == "the only backend"
    assert "predicted" not in json.dumps(decision.as_record())


def test_what_cannot_do_it_is_left_out():
    able = {n: Abilities(can=ALL - {"images"}) for n in ("a", "b")} | {"c": Abilities()}
    world = World(Fixed(), Rules(abilities=able))
    decision = world.decide(needs=frozenset({"images"}))
    assert decision.order == ("c",)
    reasons = {c.backend: c.reason for c in decision.candidates if not c.eligible}
    assert reasons == dict.fromkeys("ab", "cannot do what is asked for (images)")
    # Where none can, the first one's own words are the best answer.
    assert world.decide(needs=frozenset({"images"}), backends=("a", "b")).order == ("a", "b")


def test_an_allow_list_holds_whatever_fails():
    rules = Rules(allow_keys={"k": frozenset({"b"})}, allow_kinds={"tool": frozenset({"a", "b"})})
    world = World(Fixed(), rules)
    assert world.decide().order == ("a", "b")
    world.circuits.failed("b", UpstreamUnreachable("x"))
    assert world.decide(key_id="k").order == ("b",)
    with pytest.raises(PermissionDenied) as refused:
        world.decide(key_id="k", backends=("a", "c"))
    assert refused.value.code == "no_backend_allowed"


def test_what_cools_down_or_is_away_comes_last():
    world = World(Fixed())
    world.circuits.failed("a", UpstreamUnreachable("x"))
    world.watch.seen["b"] = Seen(healthy=False)
    decision = world.decide()
    assert decision.order == ("c", "a", "b")
    assert "upstream_unreachable" in next(c.reason for c in decision.candidates if c.backend == "a")


def test_a_window_that_is_too_small_comes_last():
    rules = Rules(abilities={"a": Abilities(context_tokens=4096)})
    world = World(Fixed(), rules)
    assert world.decide(session="new").order == NAMES  # a guess from bytes alone is not enough
    world.learn("b", 1, "s", guess_tok=10_000)
    assert world.decide().order == ("b", "c", "a")


def test_a_session_stays_where_its_text_is():
    """Two equal backends, one of them has the session's text: it stays, also when the other gets a
    little cheaper, until its cache is taken to be gone."""
    world = World(Cheapest())
    for name in ("a", "b"):
        world.learn(name, fresh_nusd=10**8, cached_nusd=0)
    world.learn("b", 1, "s", guess_tok=10_000, fresh_nusd=10**8)
    pair = ("a", "b")
    assert world.decide(backends=pair).order[0] == "b"
    world.learn("a", 60, fresh_nusd=95 * 10**6)
    decision = world.decide(backends=pair)
    assert decision.order[0] == "b" and "where the text of the session is" in decision.reason
    world.now_s += 601.0
    assert world.decide(backends=pair).order[0] == "a"


def test_load_counts():
    world = World(Fastest())
    rng = Random(1)
    for name in ("a", "b"):
        for _ in range(150):
            load = rng.uniform(0, 40)
            world.learn(name, 1, load=load, token_s=0.01 + 0.002 * load)
    world.watch.seen = {"a": Seen(load=Load(running=30.0)), "b": Seen(load=Load(running=2.0))}
    assert world.decide(backends=("a", "b")).order[0] == "b"
    world.watch.seen["b"].begun = 38  # sent there since it told
    assert world.decide(backends=("a", "b")).order[0] == "a"


def test_equal_engines_are_one_choice():
    rules = Rules(fleets={"a": "f", "b": "f"})
    world = World(Cheapest(), rules)
    world.learn("c", fresh_nusd=10**9)
    world.learn("a")
    firsts = {world.decide(session=f"s{i}").order[0] for i in range(40)}
    assert firsts == {"a", "b"}
    decision = world.decide(session="s1")
    assert decision.order[1:] == ("c", "b" if decision.order[0] == "a" else "a")
    again = World(Cheapest(), rules)
    again.learn("c", fresh_nusd=10**9)
    again.learn("a")
    for i in range(20):  # another gateway comes to the same
        assert again.decide(session=f"s{i}").order == world.decide(session=f"s{i}").order


def test_a_shadow_is_logged_and_not_followed():
    world = World(Fixed(), shadow=Cheapest())
    world.learn("a", fresh_nusd=10**9)
    world.learn("b", fresh_nusd=1)
    world.learn("c")
    decision = world.decide()
    assert decision.order[0] == "a" and decision.policy == "fixed"
    assert decision.as_record()["shadow"] == {
        "policy": "cheapest", "chosen": "b", "propensity": 1.0
    }  # fmt: skip


def test_a_decision_tells_all_and_can_be_explained():
    policy = Learned(0.05, 0.05, Pacer(None), Random(0).random)
    world = World(policy)
    for name in NAMES:
        world.learn(name)
    record = world.decide().as_record()
    assert json.loads(json.dumps(record)) == record
    weighed = {c["backend"]: c for c in record["candidates"]}
    assert set(weighed) == set(NAMES) and sum(c["chance"] for c in weighed.values()) == (
        pytest.approx(1.0, abs=1e-5)
    )
    assert set(weighed["a"]["predicted"]) >= {"ttft_ms", "tpot_ms", "cost_nusd", "met", "load"}
    assert record["task"] == {"kind": "tool", "client": "codex", "schema": "", "guess_tok": 10_000}
    record["attempts"] = [{"backend": "a", "error": "upstream_timeout"}, {"backend": "b"}]
    text = "\n".join(explain(record))
    for words in ("learned", "tool codex", *NAMES, "a: upstream_timeout", "b: answered", "ttft ms"):
        assert words in text
    assert "policy      ?" in "\n".join(explain({}))  # rows from before tell less
