"""Trees of additions as values: equality, parts, text, and the orders that specs say."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from gemmsim.probe.recognising import recognise
from gemmsim.probe.shapes import Chain, Exactly, Lanes, Pairs, Runs, Slices, Steps, Written, tree_of
from gemmsim.probe.sum_tree import EXACT, STEP, SumTree, TreeBuilder
from gemmsim.probe.tree_svg import tree_svg
from gemmsim.probe.tree_text import tree_text

C = Chain()
TEXTS = {
    C: "0:12",
    Runs(4, C, C): "0:4 (4:8)*2",
    Lanes(3, 1, C, C): "0:10:3 (1:11:3) (2:12:3)",
    Lanes(2, 2, C, C): "0:2 4:6 8:10 (2:4 6:8 10:12)",
    Pairs(1, C): "0:2 (2:4) (4:6 (6:8))*2",
    Pairs(1, C, halves=True): "0 8 4 (2 10 6) (1 9 5 (3 11 7))",
    Steps(4): "{0:4}*3",
    Steps(8, EXACT): "<0:8> <8:12>",
    Exactly(): "<0:12>",
    Runs(6, Steps(3), C): "{0:3}*2 ({6:9}*2)",
    Runs(4, C, Exactly()): "0:4 <(4:8)*2>",
}


@pytest.mark.parametrize("shape", TEXTS, ids=lambda one: TEXTS[one])
def test_text_in_runs(shape):
    assert tree_text(tree_of(shape, 12)[0]) == TEXTS[shape]


def test_equal_as_trees_whatever_the_order_of_writing():
    one, other = TreeBuilder(4), TreeBuilder(4)
    one.add("add", [one.add("add", [0, 1]), one.add("add", [2, 3])])
    later = other.add("add", [3, 2])
    other.add("add", [later, other.add("add", [1, 0])])
    assert one.tree() == other.tree() and hash(one.tree()) == hash(other.tree())
    assert one.tree() != tree_of(C, 4)[0] and one.tree() != "0:4"


def test_parts_and_quotients_are_numbered_by_rank():
    tree = tree_of(Lanes(3, 1, Runs(2, C, C), C), 12)[0]
    blocks = [tree.parents[tree.parents[lane]] for lane in range(3)]
    assert [tree.terms(one) for one in blocks] == [[lane, lane + 3, lane + 6, lane + 9] for lane in range(3)]
    assert all(tree.part(one) == tree_of(Runs(2, C, C), 4)[0] for one in blocks)
    assert tree.quotient(blocks) == tree_of(C, 3)[0]
    assert SumTree(1, ()).root == 0 and str(SumTree(1, ())) == "0"


def test_chains_of_thousands_of_terms_do_not_nest():
    tree = tree_of(C, 20000)[0]
    assert tree_text(tree) == "0:20000" and tree == tree_of(C, 20000)[0] and recognise(tree)[0] == C


#: Orders that are what they are and no simpler one at these lengths.
SAID = [
    *(C, Pairs(1, C), Pairs(3, C), Pairs(1, C, halves=True), Runs(8, C, C), Runs(7, C, Pairs(4, C))),
    *(Lanes(4, 1, C, C), Lanes(4, 2, C, Pairs(1, C)), Lanes(8, 4, C, Pairs(1, C, halves=True))),
    *(Slices((30, 20, 50), C, C), Runs(12, Pairs(4, C), C), Steps(16), Steps(16, EXACT), Exactly()),
    *(Runs(8, Exactly(), C), Runs(8, C, Exactly()), Runs(32, Steps(16), C), Lanes(2, 1, Runs(16, C, C), C)),
    Steps(8, first=32),
    Steps(8, "two blocks"),
    Slices((30, 20, 25, 25), Steps(8), Written("((0+2)+(1+3))", ((0, 2), (1, 3), (4, 5)))),
    Lanes(4, 1, C, Written("((3+(0+2))+1)", ((0, 2), (3, 4), (5, 1)))),
]


@pytest.mark.parametrize("shape", SAID, ids=str)
@pytest.mark.parametrize("K", [100, 107])
def test_an_order_is_recognised_from_its_tree(shape, K):
    tree = tree_of(shape, K)[0]
    found = recognise(tree)
    assert found and all(tree_of(one, K)[0] == tree for one in found[:5])
    assert all("Written" not in str(one) for one in found[:1]) or "Written" in str(shape)


def test_an_order_without_a_rule_is_written_out():
    build = TreeBuilder(6)
    node = build.add("add", [4, build.add("add", [0, 5])])
    node = build.add("add", [node, build.add("add", [build.add("add", [3, 1]), 2])])
    found = recognise(build.tree())
    assert found and tree_of(found[0], 6)[0] == build.tree()
    steps = TreeBuilder(6)
    steps.add(STEP, [steps.add(STEP, [0, 3, 5]), 1, 2, 4])
    assert recognise(steps.tree()) == []  # no spec has steps of terms in any order


def test_the_picture_is_svg_with_words_and_loads_nothing():
    for shape in (C, Pairs(1, C), Runs(16, Steps(4), C), Lanes(30, 1, C, C), Exactly()):
        text = tree_svg(tree_of(shape, 256)[0], "a < b & c")
        root = ElementTree.fromstring(text)
        names = {one.tag.rpartition("}")[2] for one in root.iter()}
        assert names <= {"svg", "title", "desc", "rect", "text", "line"} and "href" not in text
        assert root.find("{http://www.w3.org/2000/svg}title").text == "a < b & c"
