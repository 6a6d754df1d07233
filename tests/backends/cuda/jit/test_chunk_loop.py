"""What a pass of a loop over chunks is counted as: the shortest way around with a barrier and all loads."""

from __future__ import annotations

from gemmsim.backends.cuda.jit.sass_loop_count import Block, shortest_pass
from gemmsim.backends.cuda.jit.sass_report import instructions_of_chunk


def block(*following: int, names: str = "FADD") -> Block:
    return Block(tuple(names.split()), following)


#: 0: barrier; 1: whole or ragged?; 2: two wide loads; 3: many checked loads; 4: the innermost loop; 5: back to 0.
LOOP = [
    block(1, names="STS BAR"),
    block(2, 3, names="ISETP BRA"),
    block(4, names="LDG LDG BRA"),
    block(4, names="ISETP LDG ISETP LDG ISETP LDG"),
    block(4, 5, names="FFMA FFMA FFMA BRA"),
    block(0, names="BRA"),
]


def test_whole_tiles_way_is_counted():
    assert shortest_pass(LOOP, range(4, 5), passes=4, loads=2) == 4 * 4 + 1 + 2 + 2 + 3


def test_more_loads_take_the_longer_way():
    assert shortest_pass(LOOP, range(4, 5), passes=4, loads=3) == 4 * 4 + 1 + 2 + 2 + 6


def test_none_where_no_way_has_all():
    assert shortest_pass(LOOP, range(4, 5), passes=4, loads=5) is None
    assert shortest_pass([block(0), *LOOP[1:5], block()], range(4, 5), passes=1, loads=0) is None


TEXT = """
.L_x_0:
        /*0000*/                   STS [R1], R2 ;
        /*0010*/                   BAR.SYNC 0x0 ;
        /*0020*/                   LDG.E R2, desc[UR4][R4.64] ;
.L_x_1:
        /*0030*/                   FFMA R0, R1, R2, R0 ;
        /*0040*/                   FFMA R3, R1, R2, R3 ;
        /*0050*/               @P0 BRA `(.L_x_1) ;
        /*0060*/               @P1 BRA `(.L_x_0) ;
        /*0070*/                   EXIT ;
"""


def test_machine_code_is_read():
    assert instructions_of_chunk(TEXT, 8, 2, 1) == 4 * 3 + 3 + 1
    assert instructions_of_chunk(TEXT, 8, 2, 2) is None
    assert instructions_of_chunk("        /*0000*/                   EXIT ;\n", 8, 2, 0) is None


def test_a_call_inside_of_the_kernel_is_a_jump():
    """As sm_80's compiler leaves a loop; a call of a subroutine comes back."""
    text = TEXT.replace(
        "               @P1 BRA `(.L_x_0) ;\n",
        "               @P1 CALL.REL.NOINC `(.L_x_2) ;\n        /*0068*/                   BRA `(.L_x_0) ;\n.L_x_2:\n",
    )
    assert text != TEXT and instructions_of_chunk(text, 8, 2, 1) == 4 * 3 + 3 + 2
    text = text.replace("LDG.E", "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64) ;\n        /*0028*/  LDG.E")
    assert instructions_of_chunk(text, 8, 2, 1) == 4 * 3 + 4 + 2


def test_a_loop_may_be_left_before_its_jump_back():
    jumps_back = [*LOOP[:4], block(5, 6, names="FFMA FFMA FFMA BRA"), block(4, names="BRA"), block(0, names="BRA")]
    assert shortest_pass(jumps_back, range(4, 6), passes=4, loads=2) == 4 * 5 + 1 + 2 + 2 + 3


def test_a_loop_of_divisions_is_not_that_of_products():
    """Offsets of batches have more multiplications than a short product, and read no factors."""
    offsets = (
        ".L_x_9:\n        /*0000*/                   IMAD R1, R2, R3, R4 ;\n        /*0010*/                   IMAD R1, R2, R3, R4 ;\n"
        "        /*0018*/                   IMAD R1, R2, R3, R4 ;\n        /*0020*/               @P0 BRA `(.L_x_9) ;\n"
    )
    text = TEXT.replace("FFMA R3, R1, R2, R3", "LDS R3, [R5]")
    assert instructions_of_chunk(offsets + text, 8, 2, 1) == instructions_of_chunk(text, 8, 2, 1) == 4 * 3 + 3 + 1
