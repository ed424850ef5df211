"""Store keys and values of new rows in their pages.

Legend: as in ``layout.py``; J K/V heads, D head size.
"""

from __future__ import annotations

from torch import Tensor

from .layout import PagedLayout


def write_pages(cache: Tensor, rows: Tensor, layout: PagedLayout) -> None:
    """Copy ``rows`` [T, J, D] to their slots of ``cache`` [P, G, J, D], in place, in its dtype.

    Rows of the same slot would race; a layout has none.
    """
    cache.view(-1, *cache.shape[2:])[layout.slots] = rows.to(cache.dtype)
