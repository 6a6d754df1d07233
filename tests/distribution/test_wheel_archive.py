"""Wheels that packaging/ writes: equal files give equal bytes, and pip finds a valid RECORD."""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile

import pytest
from wheel_archive import dist_info, platforms, read_files, write_wheel

FILES = {
    "gemmsim/__init__.py": b"",
    "gemmsim/lib/libgemmsim_cpu.so": b"\x7fELF",
    "gemmsim-1.0.dist-info/METADATA": b"Name: gemmsim\n",
    "gemmsim-1.0.dist-info/RECORD": b"old",
}
EPOCH = 1_700_000_000


def test_equal_files_give_equal_bytes_in_whatever_order_they_come(tmp_path):
    write_wheel(tmp_path / "a.whl", FILES, EPOCH)
    write_wheel(tmp_path / "b.whl", dict(reversed(FILES.items())), EPOCH)
    assert (tmp_path / "a.whl").read_bytes() == (tmp_path / "b.whl").read_bytes()


def test_every_file_has_the_time_of_the_build_and_only_libraries_may_be_executed(tmp_path):
    write_wheel(tmp_path / "a.whl", FILES, EPOCH)
    with zipfile.ZipFile(tmp_path / "a.whl") as archive:
        for info in archive.infolist():
            assert info.date_time == (2023, 11, 14, 22, 13, 20)
            assert (info.external_attr >> 16 & 0o777) == (0o755 if info.filename.endswith(".so") else 0o644)


def test_the_record_names_each_file_with_its_digest_and_stands_last(tmp_path):
    write_wheel(tmp_path / "a.whl", FILES, EPOCH)
    files = read_files(tmp_path / "a.whl")
    record = f"{dist_info(files)}/RECORD"
    rows = list(csv.reader(files[record].decode().splitlines()))
    assert list(files)[-1] == record and {row[0] for row in rows} == set(files)
    for name, digest, size in rows:
        if name == record:
            assert digest == size == ""
        else:
            expected = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={expected}", str(len(files[name])))


def test_files_of_two_packages_are_refused():
    with pytest.raises(ValueError, match="one dist-info folder"):
        dist_info({**FILES, "other-1.0.dist-info/METADATA": b""})


def test_platform_tags_are_read_from_the_name(tmp_path):
    wheel = tmp_path / "gemmsim-1.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    assert platforms(wheel) == ["manylinux_2_17_x86_64", "manylinux2014_x86_64"]
