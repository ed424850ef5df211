"""What was worked out holds for a while, and is renewed where no decision waits for it."""

from __future__ import annotations

from agentspec.routing.kept import Kept
from agentspec.routing.taskclass import TaskClass

TASKS = [TaskClass("tool", f"client {i}") for i in range(6)]


class Source:
    """Works out how often it was asked."""

    def __init__(self) -> None:
        self.made = 0
        self.kept = Kept(self._made, lambda backend, model: f"{backend} {model}")
        self.tick = 0

    def _made(self, backend: str, model: str, task: TaskClass) -> int:
        self.made += 1
        return self.made

    def learn(self, backend: str, *, renew: bool) -> None:
        self.tick += 1
        self.kept.measured(f"{backend} m", backend)
        if renew:
            self.kept.renew(backend, self.tick)

    def at(self, backend: str, task: TaskClass) -> int:
        return self.kept.at(backend, "m", task, self.tick)


def test_a_backend_hardly_known_is_worked_out_after_each_measurement():
    source = Source()
    for number in range(1, 6):
        source.learn("a", renew=False)
        assert source.at("a", TASKS[0]) == source.at("a", TASKS[0]) == number


def test_one_known_well_holds_for_some_measurements_and_no_longer():
    source = Source()
    for _ in range(500):
        source.learn("a", renew=False)
    first = source.at("a", TASKS[0])
    for _ in range(6):  # each counts twice: for its label and for the backend
        source.learn("a", renew=False)
        assert source.at("a", TASKS[0]) == first
    source.learn("a", renew=False)
    assert source.at("a", TASKS[0]) == first + 1


def test_measurements_elsewhere_age_it_too():
    source = Source()
    for _ in range(500):
        source.learn("a", renew=False)
    first = source.at("a", TASKS[0])
    for _ in range(99):
        source.learn("b", renew=False)
    assert source.at("a", TASKS[0]) == first
    source.learn("b", renew=False)
    assert source.at("a", TASKS[0]) == first + 1


def test_decisions_find_it_renewed():
    source = Source()
    for number in range(500):
        source.learn("ab"[number % 2], renew=False)
    for task in TASKS:
        for backend in "ab":
            source.at(backend, task)
    for number in range(400):
        source.learn("ab"[number % 2], renew=True)
        made = source.made
        for task in TASKS:
            for backend in "ab":
                source.at(backend, task)
        assert source.made == made
    assert source.made > 2 * len(TASKS)  # it was made anew, but not by those who asked
