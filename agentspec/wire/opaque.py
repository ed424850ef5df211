"""Text that a client carries back to us without reading it.

``reasoning.encrypted_content``, a thinking block's ``signature`` and a compaction item are opaque
to clients, which echo them. Ours hold the text itself, so that nothing need be remembered here;
it is not secret from the client: it came from the same answer.
"""

from __future__ import annotations

import base64
import binascii

_MARK = "agentspec1."


def seal(text: str) -> str:
    """``text`` as an opaque word."""
    return _MARK + base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode()


def unseal(word: str | None) -> str | None:
    """The text of a word that ``seal`` made; None for any other."""
    if not word or not word.startswith(_MARK):
        return None
    try:
        raw = base64.b64decode(word[len(_MARK) :], altchars=b"-_", validate=True)
        return raw.decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
