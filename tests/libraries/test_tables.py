"""Recorded configurations: written and read in three forms; what is damaged, merged or another library's is refused."""

from __future__ import annotations

import gzip
import json
import pickle

import pytest

import gemmsim as gs
from gemmsim.libraries import (
    Call,
    Config,
    Header,
    TableError,
    UnknownPlan,
    cublaslt,
    make_table,
    read_table,
    write_table,
)
from gemmsim.libraries.recording import append_rows

HEADER = Header("h100", "13.1.1", 32 << 20, 132)
ROWS = [
    (Call(64, 64, 8192, "fp16", "fp16", "fp16", False), Config(66, 0, 4, 2, 0, 0, 35, 0, 0)),
    (Call(1, 64, 8192, "bf16", "bf16", "bf16", False), Config(13, 0, 1, 0, 0, 10, 0, 0, 0)),
    (Call(64, 64, 8192, "e4m3", "e4m3", "bf16", True), Config(66, None, 2, None, None, None, 36, None, 65535)),
    (Call(64, 64, 8192, "e4m3", "e4m3", "bf16", False), Config(66, 0, 1, 0, 0, 0, 36, 0, 0)),
    (Call(2147483647, 1, 2147483647, "fp16", "fp16", "fp32", False), Config(41, 0, 1, 0, 0, 0, 0, 0, 0)),
]


@pytest.fixture(params=["table.jsonl", "table.jsonl.gz", "table.npz"])
def path(request, tmp_path):
    write_table(tmp_path / request.param, HEADER, ROWS)
    return tmp_path / request.param


def test_what_is_written_is_read(path):
    table = read_table(path)
    assert {(row.call, row.config) for row in table} == {*ROWS}
    assert len(table) == len(ROWS) and table.header == HEADER
    assert all(table.find(call) == config for call, config in ROWS)
    same = make_table(HEADER, ROWS[::-1])
    assert table == same and hash(table) == hash(same) and pickle.loads(pickle.dumps(table)) == table
    assert table != make_table(HEADER, ROWS[1:]) and table != make_table(HEADER._replace(sms=114), ROWS)
    assert str(len(ROWS)) in repr(table) and "h100" in repr(table)


def test_calls_that_are_not_there_have_no_configuration(path):
    table = read_table(path)
    for call, _ in ROWS:
        for other in (call._replace(M=call.M - 1 or 2), call._replace(K=7), call._replace(fast=not call.fast)):
            assert table.find(other) == dict(ROWS).get(other)
        assert table.find(call._replace(out="fp64")) is None and not table.splits_nothing(call)
    assert make_table(HEADER, []).find(ROWS[0][0]) is None


def test_a_library_plans_from_its_table(path):
    library = cublaslt("h100", version="13.1", table=path)
    plan = library.plan(64, 64, 8192, "fp16")
    assert (plan.source, plan.config.slices, plan.evidence) == ("table", 4, "silicon")
    assert library.plan(64, 64, 8192, "e4m3", out="bf16", fast_accumulation=True).config.slices == 2
    assert library.plan(64, 64, 8192, "fp16", config="66,,2,,,,35").source == "config"
    with pytest.raises(UnknownPlan, match=path.name):
        library.plan(64, 64, 8191, "fp16")
    with pytest.raises(UnknownPlan, match="ALGO_ID 41"):
        library.plan(2147483647, 1, 2147483647, "fp16", out="fp32")
    assert library == cublaslt("h100", table=read_table(path)) != cublaslt("h100")
    assert pickle.loads(pickle.dumps(library)) == library and f"table='{path.name}'" in str(library)


def test_the_number_of_sms_is_part_of_a_gpu():
    with pytest.raises(TableError, match="SMs of 114"):
        cublaslt("h100", table=make_table(HEADER._replace(sms=114), ROWS))
    assert cublaslt("h100", table=make_table(HEADER._replace(sms=0), ROWS)).table
    other = make_table(HEADER._replace(gpu="gh200", sms=140), ROWS)
    assert cublaslt("h100", assume_gpu="gh200", table=other).table == other


@pytest.mark.parametrize(
    "more", [{"gpu": "gb300"}, {"version": "13.1.2"}, {"version": "12"}, {"workspace": 0}], ids=str
)
def test_tables_of_another_library_are_refused(more):
    with pytest.raises(TableError, match=f"recorded for {'GPU' if 'gpu' in more else next(iter(more))}"):
        cublaslt("h100", version="13.1", table=make_table(HEADER._replace(**more), ROWS))


def test_a_table_of_a_version_that_is_assumed():
    table = make_table(HEADER._replace(version="13.2"), ROWS)
    library = cublaslt("h100", assume_version="13.2", table=table)
    assert library.plan(64, 64, 8192, "fp16").evidence == "inferred"
    assert cublaslt("h100", table=make_table(HEADER._replace(version="13.1"), ROWS)).table is not None


def lines(path) -> list[str]:
    return path.read_text().splitlines()


@pytest.fixture
def plain(tmp_path):
    write_table(tmp_path / "t.jsonl", HEADER, ROWS)
    return tmp_path / "t.jsonl"


def test_the_form_of_a_row(plain):
    head, first = (json.loads(line) for line in lines(plain)[:2])
    assert head["format"] == "gemmsim-cublaslt/1" and head["rows"] == len(ROWS) and len(head["sha256"]) == 64
    assert first == {
        "M": 1, "N": 64, "K": 8192, "a": "bf16", "b": "bf16", "out": "bf16", "fast": False,
        "config": [13, 0, 1, 0, 0, 10, 0, 0, 0],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.npz"])
def test_a_table_that_was_cut_off_anywhere_is_refused(tmp_path, name):
    path = tmp_path / name
    write_table(path, HEADER, ROWS[:2])
    whole = path.read_bytes()
    ends = {len(whole) - 1} if name == "t.jsonl" else set()  # only the last end of line is missing
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        if size in ends:
            assert len(read_table(path)) == 2
            continue
        with pytest.raises(TableError, match=name):
            read_table(path)


def test_without_a_count_only_whole_rows_at_the_end_are_lost(plain):
    head = {key: value for key, value in json.loads(lines(plain)[0]).items() if key not in ("rows", "sha256")}
    whole = "\n".join([json.dumps(head), *lines(plain)[1:3]]).encode() + b"\n"
    known = {(row.call, row.config) for row in read_table(plain)}
    counts = set()
    for size in range(len(whole) + 1):
        plain.write_bytes(whole[:size])
        try:
            table = read_table(plain)
        except TableError:
            continue
        assert {(row.call, row.config) for row in table} <= known
        counts.add(len(table))
    assert counts == {0, 1, 2}


@pytest.mark.parametrize(
    ("line", "change", "match"),
    [
        (0, lambda row: row.update(rows=4), "5 rows, by its header 4"),
        (0, lambda row: row.update(sha256="0" * 64), "checksum"),
        (0, lambda row: row.update(format="gemmsim-cublaslt/2"), "format"),
        (0, lambda row: row.pop("gpu"), "line 1: missing gpu"),
        (0, lambda row: row.update(version="13.x"), "version"),
        (0, lambda row: row.update(workspace=-1), "negative"),
        (0, lambda row: row.update(workspace=True), "line 1: of another type workspace"),
        (2, lambda row: row.update(M=0), "line 3: M = 0"),
        (2, lambda row: row.update(M=64.0), "line 3: of another type M"),
        (2, lambda row: row.update(M=True), "line 3: of another type M"),
        (2, lambda row: row.update(fast=0), "line 3: of another type fast"),
        (2, lambda row: row.update(a="fp61"), "line 3: a = 'fp61'"),
        (2, lambda row: row.update(colour="red"), "line 3: unknown colour"),
        (2, lambda row: row.pop("config"), "line 3: missing config"),
        (2, lambda row: row["config"].pop(), "line 3: config"),
        (2, lambda row: row["config"].__setitem__(2, 4.0), "line 3: config"),
        (2, lambda row: row["config"].__setitem__(2, False), "line 3: config"),
        (2, lambda row: row["config"].__setitem__(0, None), "line 3: config"),
        (2, lambda row: row["config"].__setitem__(2, 2**40), "line 3: config"),
    ],
)
def test_lines_that_are_no_rows_are_named(plain, line, change, match):
    text = lines(plain)
    row = json.loads(text[line])
    change(row)
    head = json.loads(text[0]) if line else row
    text[line] = json.dumps(row)
    if line:  # the digest would be another one
        text[0] = json.dumps({key: value for key, value in head.items() if key not in ("rows", "sha256")})
    plain.write_text("\n".join(text) + "\n")
    with pytest.raises(TableError, match=match) as refusal:
        read_table(plain)
    assert "t.jsonl" in str(refusal.value) and "\n  " in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["", "\n", "no JSON\n", "[]\n", "null\n", "\x00\x01", "7\n", pytest.param("[" * 200_000, id="nested")]
)
def test_files_that_are_no_tables(tmp_path, text):
    for name in ("t.jsonl", "t.jsonl.gz", "t.npz"):
        (tmp_path / name).write_text(text)
        with pytest.raises(TableError, match=name):
            read_table(tmp_path / name)
    (tmp_path / "t.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(TableError):
        read_table(tmp_path / "t.jsonl")
    (tmp_path / "g.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(TableError):
        read_table(tmp_path / "g.jsonl.gz")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TableError, match="No such file"):
        read_table(tmp_path / "t.jsonl")
    with pytest.raises(TableError):
        cublaslt("h100", table=tmp_path)
    for wrong in (7, b"t.jsonl", ROWS):
        with pytest.raises(TableError, match="table="):
            cublaslt("h100", table=wrong)


def test_one_call_has_one_configuration(tmp_path):
    other = (ROWS[0][0], ROWS[0][1]._replace(SPLITK_NUM=5))
    for name in ("t.jsonl", "t.npz"):
        write_table(tmp_path / name, HEADER, [*ROWS, ROWS[0]])
        assert len(read_table(tmp_path / name)) == len(ROWS)
        with pytest.raises(TableError, match="one configuration"):
            write_table(tmp_path / name, HEADER, [*ROWS, other])
    write_table(tmp_path / "t.jsonl", HEADER, ROWS)
    head = {
        key: value for key, value in json.loads(lines(tmp_path / "t.jsonl")[0]).items() if key not in ("rows", "sha256")
    }
    text = lines(tmp_path / "t.jsonl")
    merged = [json.dumps(head), *text[1:], text[1].replace("[13, ", "[14, ")]
    (tmp_path / "t.jsonl").write_text("\n".join(merged) + "\n")
    with pytest.raises(TableError, match="line 7"):
        read_table(tmp_path / "t.jsonl")


def test_columns_with_two_configurations_are_refused(tmp_path):
    import numpy as np

    write_table(tmp_path / "t.npz", HEADER, ROWS[:2])
    stored = dict(np.load(tmp_path / "t.npz"))
    for key in ("M", "N", "K", "a", "b", "out", "fast"):
        stored[key] = stored[key][[0, 0]]
    np.savez(tmp_path / "t.npz", **stored)
    with pytest.raises(TableError, match="one configuration"):
        read_table(tmp_path / "t.npz")
    for key, value in (
        ("M", stored["M"] * 0),
        ("a", stored["a"] + 9),
        ("K", stored["K"][:1]),
        ("N", stored["N"] * 1.5),
    ):
        np.savez(tmp_path / "t.npz", **{**stored, key: value})
        with pytest.raises(TableError):
            read_table(tmp_path / "t.npz")
    np.savez(tmp_path / "t.npz", **{key: value for key, value in stored.items() if key != "fast"})
    with pytest.raises(TableError, match="fast"):
        read_table(tmp_path / "t.npz")


def test_formats_that_tables_do_not_have():
    with pytest.raises(TableError, match="fp64"):
        make_table(HEADER, [(Call(1, 1, 1, "fp64", "fp64", "fp64", False), Config(66))])


# Recording


def test_recording_goes_on_where_it_ended(tmp_path):
    path, asked = tmp_path / "t.jsonl", []

    def ask(call):
        asked.append(call)
        return dict(ROWS).get(call)

    calls = [call for call, _ in ROWS]
    unknown = Call(3, 3, 3, "fp16", "fp16", "fp16", False)
    assert append_rows(path, HEADER, [*calls[:2], calls[0], unknown], ask) == 2
    assert asked == [*calls[:2], unknown]
    with path.open("a") as target:
        target.write('{"M": 64, "N"')  # a process that ended in a row
    asked.clear()
    assert append_rows(path, HEADER, calls, ask) == 3 and asked == calls[2:]
    assert read_table(path) == make_table(HEADER, ROWS)
    assert append_rows(path, HEADER, calls, ask) == 0


def test_recording_into_the_table_of_another_library(tmp_path):
    append_rows(tmp_path / "t.jsonl", HEADER, [], dict(ROWS).get)
    with pytest.raises(TableError, match="workspace"):
        append_rows(tmp_path / "t.jsonl", HEADER._replace(workspace=0), [], dict(ROWS).get)
    for name in ("t.jsonl.gz", "t.npz"):
        with pytest.raises(TableError, match="appended"):
            append_rows(tmp_path / name, HEADER, [], dict(ROWS).get)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["t.jsonl"]


def test_processes_may_append_to_one_table(tmp_path):
    import multiprocessing

    path = tmp_path / "t.jsonl"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append, args=(path, start)) for start in (0, 400)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(read_table(path)) == 800


def _append(path, start):
    from gemmsim.libraries import Call, Config, Header
    from gemmsim.libraries.recording import append_rows

    calls = [Call(1 + start + i, 64, 64, "fp16", "fp16", "fp16", False) for i in range(400)]
    append_rows(path, Header("h100", "13.1.1", 32 << 20, 132), calls, lambda call: Config(66, 0, 1, 0, 0, 0, 35, 0, 0))


def test_public_names():
    assert {"Table", "TableError", "read_table", "write_table", "make_table"} <= set(gs.libraries.__all__)
