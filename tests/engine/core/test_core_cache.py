"""The page pool: sharing, eviction, and an integrity check that sees what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.cache import PagePool, PageTable

TEXT = list(range(100, 120))


def filled(pool: PagePool, tokens: list[int], scope: str = "") -> PageTable:
    """A table over ``tokens``, whose K/V is computed."""
    table = PageTable(scope)
    computed = pool.match(table, tokens, len(tokens))
    assert pool.grow(table, len(tokens)) and computed <= len(tokens)
    pool.publish(table, tokens, len(tokens))
    return table


def hit(pool: PagePool, tokens: list[int], scope: str = "", limit: int = 1000) -> int:
    """How many positions of ``tokens`` the index serves; nothing stays held."""
    table = PageTable(scope)
    served = pool.match(table, tokens, min(limit, len(tokens)))
    pool.release(table)
    return served


def test_full_pages_are_served_up_to_the_limit():
    pool = PagePool(8, 4)
    pool.release(filled(pool, TEXT[:10]))
    assert hit(pool, TEXT[:10]) == 8
    assert hit(pool, TEXT) == 8
    assert hit(pool, TEXT[:8], limit=7) == 4
    assert hit(pool, TEXT[:6]) == 4
    assert hit(pool, [1, *TEXT]) == 0


def test_a_page_depends_on_all_tokens_before_it():
    pool = PagePool(8, 2)
    pool.release(filled(pool, [1, 2, 3, 4]))
    pool.release(filled(pool, [5, 6, 7, 8]))
    assert hit(pool, [5, 6, 3, 4]) == 2


def test_scopes_share_nothing():
    pool = PagePool(8, 4)
    one, other = filled(pool, TEXT[:8], "one"), filled(pool, TEXT[:8], "other")
    assert not set(one.pages) & set(other.pages)
    assert hit(pool, TEXT, "third") == 0


def test_running_sequences_share_pages_and_the_last_one_frees_them():
    pool = PagePool(4, 4)
    first = filled(pool, TEXT[:8])
    second = filled(pool, TEXT[:8])
    assert first.pages == second.pages and pool.used == 2
    pool.release(first)
    assert (pool.used, pool.cached) == (2, 0)
    pool.release(second)
    assert (pool.used, pool.cached, pool.free) == (0, 2, 2)


def test_the_end_of_a_text_is_evicted_before_its_beginning():
    pool = PagePool(4, 4)
    pool.release(filled(pool, TEXT[:16]))
    table = PageTable("")
    assert pool.grow(table, 8)
    assert hit(pool, TEXT) == 8


def test_the_least_recently_used_text_is_evicted_first():
    pool = PagePool(3, 2)
    for text in ([1, 1], [2, 2], [3, 3]):
        pool.release(filled(pool, text))
    assert hit(pool, [1, 1]) == 2
    assert pool.grow(PageTable(""), 2)
    assert [hit(pool, [n, n]) for n in (1, 2, 3)] == [2, 0, 2]


def test_grow_without_room_changes_nothing():
    pool = PagePool(3, 4)
    held = filled(pool, TEXT[:8])
    table = PageTable("")
    assert not pool.grow(table, 8)
    assert table.pages == [] and pool.free == 1
    pool.check_integrity([held, table])


def test_two_that_computed_the_same_text_keep_their_own_pages():
    pool = PagePool(8, 4)
    first, second = PageTable(""), PageTable("")
    for table in (first, second):
        assert pool.grow(table, 8)
    for table in (first, second):
        pool.publish(table, TEXT, 8)
    pool.check_integrity([first, second])
    pool.release(second)
    assert (pool.used, pool.cached, pool.free) == (2, 0, 6)
    pool.check_integrity([first])


@pytest.mark.parametrize(
    "damage",
    [
        lambda pool, table: table.pages.append(table.pages[0]),
        lambda pool, table: table.pages.pop(),
        lambda pool, table: table.keys.reverse(),
        lambda pool, table: table.keys.pop(),
        lambda pool, table: pool._free.append(table.pages[0]),
        lambda pool, table: pool._free.pop(),
        lambda pool, table: pool._page_of.clear(),
        lambda pool, table: pool._cached.clear(),
        lambda pool, table: pool._references.__setitem__(table.pages[0], 2),
    ],
)
def test_the_integrity_check_sees_damage(damage):
    pool = PagePool(8, 4)
    pool.release(filled(pool, [9] * 8))
    table = filled(pool, TEXT[:10])
    pool.check_integrity([table])
    damage(pool, table)
    with pytest.raises(AssertionError):
        pool.check_integrity([table])


@given(
    st.lists(
        st.tuples(st.sampled_from(["open", "close"]), st.integers(0, 5), st.integers(1, 14)),
        max_size=40,
    )
)
def test_any_use_keeps_the_pool_whole(events):
    """Served prefixes are texts that were published, and never too long."""
    pool = PagePool(6, 2)
    open_tables: dict[int, PageTable] = {}
    published: set[tuple[int, ...]] = set()
    for what, number, length in events:
        tokens = [number % 3] * (length // 2) + [7] * (length - length // 2)
        if what == "open" and number not in open_tables:
            table = PageTable("")
            served = pool.match(table, tokens, length - 1)
            assert served < length and (not served or tuple(tokens[:served]) in published)
            if not pool.grow(table, length):
                pool.release(table)
                continue
            pool.publish(table, tokens, length)
            published |= {tuple(tokens[:end]) for end in range(2, length + 1, 2)}
            open_tables[number] = table
        elif what == "close" and number in open_tables:
            pool.release(open_tables.pop(number))
        pool.check_integrity(open_tables.values())
