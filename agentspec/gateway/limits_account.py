"""A limit as one process knows it: the slice it holds, and what of that is free.

    slice = free + reserved (in flight) + spent (used, and not told yet)

Taking from the slice asks nobody. ``limits_pump.py`` tells what was spent and asks for more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentspec.store.budgets import MOST, RPM, Limit, Period, bounded
from agentspec.store.leases import SPARE_SHARE, Ask, Grant, Place

FORGETTING = 0.1
"""Share of a request in ``Account.ratio`` that came to less, beside its estimate, than others."""

REFUSED_S = 0.25
"""After the database said that there is no more, for how long it isn't asked again."""


@dataclass(slots=True)
class Account:
    """One limit in one period. Times are monotonic seconds.

    remaining: what any process might still get, by the last exchange. taken: since the last beat.
    needed: amounts that requests wait for. ratio: how many times its estimate a request comes to.
    """

    limit: Limit
    period: Period
    free: int = 0
    reserved: int = 0
    spent: int = 0
    needed: int = 0
    taken: int = 0
    remaining: int = 0
    until_s: float = 0.0
    refused_until_s: float = 0.0
    ratio: float = 1.0
    spare: int = field(default=0, repr=False)

    @property
    def place(self) -> Place:
        return self.limit.owner, self.limit.kind, self.period.start_ms

    @property
    def at_once(self) -> bool:
        """Whether taking is using: a request that was let in was made, whatever came of it."""
        return self.limit.kind == RPM

    @property
    def idle(self) -> bool:
        return not (self.free or self.reserved or self.spent or self.needed or self.taken)

    def has(self, amount: int, now_s: float) -> bool:
        """Whether the slice covers ``amount`` now. A lease that has ended covers nothing."""
        if now_s >= self.until_s:
            self.free = min(self.free, 0)
        return self.free >= amount

    def take(self, amount: int) -> int:
        """Let a request in that is estimated so; returns what is reserved for it.

        Where requests came to more than their estimates, that is more, as far as the slice goes:
        else it would let in too many before the first of them tell what they used.
        """
        taken = max(amount, min(self.free, round(amount * self.ratio)))
        self.free -= taken
        self.taken += taken
        if self.at_once:
            self.spent += taken
        else:
            self.reserved += taken
        return taken

    def settle(self, amount: int, reserved: int, used: int) -> None:
        """What was estimated as ``amount`` turned out as ``used``. More than was reserved: ``free``
        may get negative."""
        if self.at_once:
            return
        used = bounded(used)
        came = max(1.0, used / max(amount, 1))
        self.ratio += (came - self.ratio) * (1.0 if came > self.ratio else FORGETTING)
        self.reserved -= reserved
        self.spent = min(self.spent + used, MOST)
        self.free = max(self.free + reserved - used, -MOST)
        self.taken = min(self.taken + max(0, used - reserved), MOST)

    def low(self) -> bool:
        """Whether to ask for more before somebody has to wait for it."""
        return self.free * 2 < self._wanted()

    def _wanted(self) -> int:
        """What to hold ready: as much as a beat takes, but of what is nearly gone next to nothing,
        since others may need it at once."""
        return min(max(self.spare, self.taken), self.remaining // SPARE_SHARE)

    def ask(self) -> Ask:
        """What to tell and to ask now; it counts as told until ``failed``."""
        surplus = max(0, self.free - self.needed - 2 * self._wanted())
        # What requests came to beyond their reservation is told with the rest, and owed no longer.
        self.free = max(0, self.free) - surplus
        ask = Ask(
            place=self.place,
            limit=self.limit.amount,
            spent=self.spent,
            held=self.free + self.reserved,
            need=max(0, self.needed - self.free),
            spare=max(0, max(self.spare, self.taken) - max(0, self.free - self.needed)),
        )
        self.spent = self.needed = 0
        return ask

    def granted(self, ask: Ask, grant: Grant, began_s: float, lease_s: float) -> None:
        """began_s: before the exchange, so that the lease ends here no later than there."""
        self.free += grant.granted
        self.remaining = grant.remaining
        self.until_s = began_s + lease_s
        if grant.granted < ask.need:
            self.refused_until_s = began_s + REFUSED_S

    def refused(self, ask: Ask, began_s: float) -> None:
        """The store can't hold what was told: this account alone stays shut."""
        self.failed(ask)
        self.refused_until_s = began_s + REFUSED_S

    def failed(self, ask: Ask) -> None:
        """Nothing was told. A surplus that was given back is not taken again: lacking is safe."""
        self.spent = min(self.spent + ask.spent, MOST)

    def beat(self) -> None:
        """A beat has passed: what was taken in it is what to hold ready."""
        self.spare, self.taken = max(self.taken, self.spare // 2 if self.taken else 0), 0
