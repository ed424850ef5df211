"""Linear layer over group-quantised weights with int8 activations; see ``reference.py``."""

from .pack import (
    GROUP,
    ROWS,
    QuantizedWeight,
    concatenate,
    from_q4_1,
    from_q8_0,
    pack,
    quantize,
    quantize4,
    unpack,
)
from .reference import linear_q_reference, quantize_activations

__all__ = [
    "GROUP",
    "ROWS",
    "QuantizedWeight",
    "concatenate",
    "from_q4_1",
    "from_q8_0",
    "linear_q_reference",
    "pack",
    "quantize",
    "quantize4",
    "quantize_activations",
    "unpack",
]
