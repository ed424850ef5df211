"""Tool calls and payloads: journalled with a request's end, written once, secrets left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select

from agentspec.cli import main
from agentspec.engine.train.prompts import read_traffic
from agentspec.store.journal import FOLDER, Journal
from agentspec.store.payload import BLANK, payloads, redact
from agentspec.store.record import CallRecord, CallsRecord, PayloadRecord, RequestRecord
from agentspec.store.replay import Journals
from agentspec.store.rows import commit
from agentspec.store.schema import request, request_payload, tool_call
from agentspec.store.writer import Drained, drain_once


def close(journal: Journal, id: str) -> None:
    calls = [CallRecord("read_file", True), CallRecord("nul \0" + "x" * 600, False, repaired=True)]
    journal.close(
        RequestRecord(id=id, ts_ms=5, tool_calls=2),
        CallsRecord(id, 5, calls),
        PayloadRecord(id, 5, "request", '{"messages": "snow \u2603 \0"}' * 50),
        PayloadRecord(id, 5, "response", '{"authorization": "Bearer abcdef123456"}'),
    )


def test_notes_lie_beside_the_row(tmp_path: Path, engine: Engine):
    with Journal(tmp_path) as journal:
        close(journal, "a")
        assert (tmp_path / FOLDER).is_dir()
        assert drain_once(tmp_path, engine) == Drained(rows=1)
    with engine.connect() as connection:
        rows = connection.execute(select(tool_call).order_by(tool_call.c.idx)).all()
        found = payloads(connection, "a")
        size = select(request_payload.c.plain_bytes, func.length(request_payload.c.body))
        plain, small = connection.execute(size.where(request_payload.c.kind == "request")).one()
    assert [tuple(row) for row in rows] == [
        ("a", 0, 5, "read_file", True, False),
        ("a", 1, 5, ("nul \ufffd" + "x" * 600)[:500], False, True),
    ]
    assert [(p.kind, p.text, p.redacted) for p in found] == [
        ("request", '{"messages": "snow \u2603 \0"}' * 50, 0),
        ("response", f'{{"authorization": "Bearer {BLANK}"}}', 1),
    ]
    assert small < plain / 5


def test_kept_payloads_go_out_as_lines(
    tmp_path: Path, engine: Engine, url: str, capsys: pytest.CaptureFixture[str]
):
    body = '{"messages": [{"role": "user", "content": "password: \\"correct horse\\" \u2603"}]}'
    kept = (("a", "chat", "ok"), ("b", "messages", "ok"), ("c", "chat", "error"))
    with Journal(tmp_path) as journal:
        for at_ms, (id, surface, status) in enumerate(kept, start=10):
            journal.close(
                RequestRecord(id=id, ts_ms=at_ms, surface=surface, status=status, model="m"),
                PayloadRecord(id, at_ms, "request", body),
                PayloadRecord(id, at_ms, "response", f"said {id}"),
            )
    journal.close(RequestRecord(id="d", ts_ms=20))  # of which nothing was kept
    journal.release()
    drain_once(tmp_path, engine)
    config, out = tmp_path / "agentspec.toml", tmp_path / "traffic.jsonl"
    config.write_text(f'[store]\nurl = "{url}"\n')
    command = ["db", "export", "--config", str(config), "--payloads", str(out)]
    assert main(command) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["request_id"], line["kind"]) for line in lines] == [
        (id, kind) for id, *_ in kept for kind in ("request", "response")
    ]
    assert [(line["surface"], line["status"]) for line in lines[::2]] == [k[1:] for k in kept]
    assert "horse" not in out.read_text() and BLANK in lines[0]["text"]
    assert (lines[0]["ts_ms"], lines[0]["model"], lines[0]["redacted"]) == (10, "m", 1)
    assert out.stat().st_mode & 0o777 == 0o600
    assert main([*command, "--surface", "chat", "--status", "ok"]) == 0
    assert [line["text"] for line in map(json.loads, out.read_text().splitlines())][1:] == [
        "said a"
    ]
    (prompt,) = read_traffic(out)  # what ``agentspec draft regenerate --from-traffic`` reads
    assert prompt.body["messages"][0]["content"].endswith("\u2603")
    capsys.readouterr()
    assert main([*command, "--since", "2001-01-01"]) == 0
    assert "none are kept" in capsys.readouterr().out and out.read_text() == ""
    assert main(command[:-2]) != 0
    assert "--payloads" in capsys.readouterr().err


def test_read_twice_they_are_written_once(tmp_path: Path, engine: Engine):
    with Journal(tmp_path) as journal:
        for id in ("a", "b"):
            close(journal, id)
        for _ in range(2):
            journals = Journals(tmp_path, {})  # a writer whose offsets were lost
            assert commit(engine, journals.read(100), tmp_path / "bad") == 0
            journals.close()
    with engine.connect() as connection:
        counts = [
            connection.scalar(select(func.count()).select_from(table))
            for table in (request, tool_call, request_payload)
        ]
    assert counts == [2, 4, 4]


SECRETS = [
    "sk-proj-abcdefghijklmnop1234",
    "ghp_abcdefghijklmnopqrst1234",
    "AKIAABCDEFGHIJKLMNOP",
    "xoxb-1234567890-abcdef",
    "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "glpat-abcdefghij_1234567890",
    "as-" + "aB3_-xyz" * 5 + "end",
    "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nxyz\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_what_is_shaped_like_a_secret_goes(secret: str):
    assert redact(f"export X={secret} and on") == (f"export X={BLANK} and on", 1)


@pytest.mark.parametrize(
    "text",
    ['"api_key": "hunter2hunter2"', "PASSWORD=hunter2hunter2", '\\"secret\\": \\"hunter2!!\\"'],
)
def test_what_is_named_a_secret_goes(text: str):
    blanked, count = redact(f"{text} and on")
    assert count == 1 and "hunter2" not in blanked and blanked.endswith(" and on")


@pytest.mark.parametrize(
    ("text", "blanked"),
    [
        (
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY x",
            "AWS_SECRET_ACCESS_KEY=[redacted] x",
        ),
        ("GITHUB_TOKEN=0123456789abcdef x", "GITHUB_TOKEN=[redacted] x"),
        ("GITHUB_TOKEN=ghp_abcdefghijklmnopqrst1234", "GITHUB_TOKEN=[redacted]"),
        ("postgres://me:p%40ss!@db:5432/x", "postgres://me:[redacted]@db:5432/x"),
        ("redis://:pw@h", "redis://:[redacted]@h"),
        ("PASSWORD: correct horse battery\nnext", "PASSWORD: [redacted]\nnext"),
        ('password = "correct horse battery"; x', 'password = "[redacted]"; x'),
        ('{"Authorization": "Bearer abc def"}', '{"Authorization": "Bearer [redacted]"}'),
        ('\\"password\\": \\"a b c d e f\\" x', '\\"password\\": \\"[redacted]\\" x'),
    ],
)
def test_secrets_in_the_places_where_they_usually_lie(text: str, blanked: str):
    assert redact(text) == (blanked, 1)


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/a@b",
        '"max_tokens": 100000',
        "as-is, as-you-like-it",
        "task-list for the desk-lamp",
        'password: ""',
        "the secret is out",
    ],
)
def test_plain_text_stays(text: str):
    assert redact(text) == (text, 0)


def test_hostile_shapes_do_not_hold_up_redaction():
    """A pattern that backtracked would not come back from these."""
    for shape in (
        "sk-" * 300_000,
        "://a:" * 200_000,
        "password:\n" * 100_000,
        "api_key" * 200_000,
        "eyJ" * 300_000,
    ):
        assert redact(shape + " end")[0].endswith(" end")


def _pieces(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


def _chat(piece: str) -> str:
    event = {"choices": [{"index": 0, "delta": {"content": piece}}]}
    return f"data: {json.dumps(event, separators=(',', ':'))}\n\n"


def _messages(piece: str) -> str:
    delta = {"type": "input_json_delta", "partial_json": piece}
    event = {"type": "content_block_delta", "index": 1, "delta": delta}
    return f"event: content_block_delta\ndata: {json.dumps(event)}\n\n"


def _responses(piece: str) -> str:
    event = {"type": "response.output_text.delta", "output_index": 0, "delta": piece}
    return f"event: response.output_text.delta\ndata: {json.dumps(event)}\n\n"


@pytest.mark.parametrize("event", [_chat, _messages, _responses])
@pytest.mark.parametrize("secret", ["sk-0123456789abcdefghij", "ghp_0123456789abcdefghijABCD"])
def test_a_secret_that_is_streamed_in_pieces_is_blanked_out(event, secret):
    said = f'write "{secret}" into it, then \\ go on'
    text, count = redact("".join(map(event, _pieces(said))))
    events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]
    kept = "".join(_strings(events))
    assert count == 1 and said.replace(secret, "[redacted]") in kept
    assert len(events) == len(_pieces(said))


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [s for k, v in value.items() if k != "type" for s in _strings(v)]
    if isinstance(value, list):
        return [s for v in value for s in _strings(v)]
    return [value] if isinstance(value, str) else []


def test_a_stream_without_secrets_is_kept_as_it_came():
    stream = "".join(map(_chat, _pieces('nothing here but \\ and " and words')))
    assert redact(stream) == (stream, 0)
