"""Grammars as token masks, and what masks cannot hold as checks.

Read next: ``base.py`` (what the engine asks of a live constraint), ``factory.py`` (from a request's
demands to a compiled constraint), ``session.py`` (one text under a grammar), ``relax.py`` (a schema
in an engine's words).
"""

from .base import CompiledConstraint, Constraint, ConstraintUnmet, ConstraintViolated

__all__ = ["CompiledConstraint", "Constraint", "ConstraintUnmet", "ConstraintViolated"]
