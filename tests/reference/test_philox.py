"""Philox4x32-10 against the published known answers, and the assignment of its words to roundings."""

import pytest

from gemmsim.reference import Site, element_draw, element_draws, philox, step_draw, step_draws

ONES = 0xFFFFFFFF
# Random123 1.09, kat_vectors, philox4x32 10.
KNOWN = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES), (ONES, ONES, ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
SEED = 0x0123456789ABCDEF
KEY = (0x89ABCDEF, 0x01234567)


@pytest.mark.parametrize("key, counter, words", KNOWN)
def test_known_answers(key, counter, words):
    assert philox(key, counter) == words


@pytest.mark.parametrize("r", [1, 3, 8, 15, 16])
def test_up_to_16_bits_one_block_serves_eight_steps_low_halves_first(r):
    row, col = (5 << 32) + 7, 11
    for k in range(40):
        words = philox(KEY, (11, 7, k // 8, 3 | (5 << 8)))
        word = words[(k % 8) // 2]
        half = word & 0xFFFF if k % 2 == 0 else word >> 16
        assert step_draw(SEED, row, col, k, Site.ADD, r) == half >> (16 - r)


@pytest.mark.parametrize("r", [17, 24, 32])
def test_beyond_16_bits_one_block_serves_four_steps(r):
    for k in range(20):
        words = philox(KEY, (11, 7, k // 4, 2))
        assert step_draw(SEED, 7, 11, k, Site.PRODUCT, r) == words[k % 4] >> (32 - r)


@pytest.mark.parametrize("r", [8, 24])
def test_elements_count_blocks_over_two_counter_words(r):
    n = 8 if r <= 16 else 4
    for i in [0, 1, 7, 9, n * 2**32 - 1, n * 2**32, n * 2**32 + 5]:
        words = philox(KEY, ((i // n) % 2**32, (i // n) >> 32, 0, 16))
        j = i % n
        want = (words[j // 2] >> (16 * (j % 2)) & 0xFFFF) >> (16 - r) if r <= 16 else words[j] >> (32 - r)
        assert element_draw(SEED, i, Site.QUANTIZE, r) == want


@pytest.mark.parametrize("r", [4, 20])
@pytest.mark.parametrize("start, stop", [(0, 0), (0, 8), (3, 5), (7, 30)])
def test_ranges_of_draws_are_the_single_ones(r, start, stop):
    assert step_draws(SEED, 1, 2, start, stop, 3, r) == [step_draw(SEED, 1, 2, k, 3, r) for k in range(start, stop)]
    assert element_draws(SEED, start, stop, 0, r) == [element_draw(SEED, i, 0, r) for i in range(start, stop)]
