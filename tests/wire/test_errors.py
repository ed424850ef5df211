"""The error tree: every class has a status, bodies are OpenAI's."""

import pytest

from agentspec.wire import errors
from agentspec.wire.extension import SourceCount, SpecReport, report_from


def descendants(cls):
    return {cls} | {leaf for child in cls.__subclasses__() for leaf in descendants(child)}


@pytest.mark.parametrize(
    "cls", sorted(descendants(errors.AgentspecError), key=lambda c: c.__name__)
)
def test_every_class_has_a_status_and_stands_in_the_tree(cls):
    error = cls.__new__(cls)  # other rooms' constructors take other things
    errors.AgentspecError.__init__(error, "what happened", param="field")
    assert 400 <= errors.http_status(error) < 600
    if cls.__module__ == errors.__name__:  # other rooms have branches of their own
        assert cls.__name__ in errors.__doc__
    body = errors.openai_body(error)["error"]
    assert set(body) == {"message", "type", "param", "code"}
    assert body["param"] == "field"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidRequest("x"), 400),
        (errors.ContextLengthExceeded.of(9000, 8192), 400),
        (errors.ModelNotFound("x"), 404),
        (errors.BodyTooLarge("x"), 413),
        (errors.UpstreamTimeout("x"), 504),
        (errors.UpstreamFailed("x", status=429), 429),
        (errors.UpstreamFailed("x", status=500), 502),
        (errors.GenerationFailed("x"), 500),
    ],
)
def test_status_table(error, status):
    assert errors.http_status(error) == status


def test_context_error_is_worded_as_agents_recognise_it():
    error = errors.ContextLengthExceeded.of(9000, 8192)
    assert error.code == "context_length_exceeded"
    assert "maximum context length is 8192 tokens" in error.message
    assert "9000 tokens" in error.message


def test_context_error_says_when_it_did_not_count_to_the_end_or_nothing_is_left():
    of = errors.ContextLengthExceeded.of
    assert "at least 9000 tokens" in of(9000, 8192, at_least=True).message
    assert "leaves no room" in of(8192, 8192).message
    assert "leaves no room" not in of(8193, 8192).message


def test_totals_leave_forced_tokens_out():
    report = SpecReport(sources={"forced": SourceCount(5, 5), "suffix": SourceCount(7, 3)})
    assert report.totals() == (7, 3)


def test_a_report_of_another_version_is_not_read():
    assert report_from({"v": 99}) is None
    assert report_from("x") is None
    assert report_from({"steps": 3}).steps == 3
