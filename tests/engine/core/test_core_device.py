"""With logits on a device: the text is the reference's too, whatever drafts and schedule."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.engine import core, device_verify
from tests.engine.core.reference import Reference
from tests.engine.core.test_core_engine import OPTIONS, REQUESTS, smallest_pool, with_stop_ids
from tests.engine.core.world import MODEL, World, check_told, make


@settings(max_examples=60)
@given(
    requests=st.lists(REQUESTS.map(with_stop_ids), min_size=1, max_size=5),
    options=OPTIONS,
)
def test_the_text_is_the_references(requests, options):
    with mock.patch.object(core, "HOST", "elsewhere"):
        for number, request in enumerate(requests):
            request.id = f"r{number}"
        told = World(pages=smallest_pool(requests, options["page_tokens"]) + 4, **options).run(
            *requests
        )
        for request in requests:
            check_told(told[request.id], Reference(MODEL, request).decode())


def test_it_is_the_kernels_that_verify():
    with (
        mock.patch.object(core, "HOST", "elsewhere"),
        mock.patch.object(core, "verify", side_effect=AssertionError("on the host")),
        mock.patch.object(device_verify, "accept", wraps=device_verify.accept) as accept,
    ):
        report = World().run(make(sources=("oracle",)))["r"].report
    assert report.steps < 15 and accept.call_count == report.steps
