"""Where sessions have been, and what of their text lies in a backend's cache."""

from __future__ import annotations

from dataclasses import dataclass, field

from .outcome import Outcome

MOST_SESSIONS = 20_000
_PLACES = 4
_TURNS_AT_FIRST = 10.0
_MOST_TURNS = 20.0  # sessions may be longer; what is predicted holds no longer than that
_FADES_OVER = 500.0


@dataclass(slots=True)
class Place:
    """Tokens of the session's text that a backend has seen, and when it was last there."""

    tokens: int
    at_s: float


@dataclass(slots=True)
class Session:
    """home: the backend that answered last. scale: prompt tokens over those guessed."""

    home: str = ""
    turns: int = 0
    scale: float = 1.0
    places: dict[str, Place] = field(default_factory=dict)


class Sessions:
    """The sessions of this process, the least recently used forgotten first.

    cache_s: how long text is taken to stay in a cache unused.
    """

    def __init__(self, cache_s: float):
        self._cache_s = cache_s
        self._sessions: dict[str, Session] = {}
        self._turns, self._begun = _TURNS_AT_FIRST, 1.0

    def get(self, id: str) -> Session | None:
        return self._sessions.get(id)

    def home(self, id: str, now_s: float) -> str:
        """The backend that has the session's text in its cache; "" for none."""
        session = self._sessions.get(id)
        if session is None or not self.seen(session, session.home, now_s):
            return ""
        return session.home

    def seen(self, session: Session, backend: str, now_s: float) -> int:
        """Tokens of the session's text that the backend may have in its cache now."""
        place = session.places.get(backend)
        if place is None or now_s - place.at_s > self._cache_s:
            return 0
        return place.tokens

    def turns_to_come(self) -> float:
        """How many requests of a session follow one, this one included, on the average."""
        return max(1.0, min(_MOST_TURNS, self._turns / self._begun))

    def note(self, outcome: Outcome) -> None:
        """A request was answered."""
        if not outcome.session or outcome.status != "ok":
            return
        session = self._sessions.pop(outcome.session, None)
        keep = 1.0 - 1.0 / _FADES_OVER
        self._turns, self._begun = self._turns * keep + 1.0, self._begun * keep
        if session is None:
            session = Session()
            self._begun += 1.0
        self._sessions[outcome.session] = session
        if len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session.home, session.turns = outcome.backend, session.turns + 1
        if outcome.guess_tok > 0 and outcome.in_tok > 0:
            session.scale = outcome.in_tok / outcome.guess_tok
        session.places.pop(outcome.backend, None)
        session.places[outcome.backend] = Place(outcome.in_tok + outcome.out_tok, outcome.at_s)
        if len(session.places) > _PLACES:
            del session.places[next(iter(session.places))]
