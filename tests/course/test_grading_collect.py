"""Collecting: every layout finds its students, nothing hostile gets through, nothing is lost."""

import os
import stat
import zipfile
from datetime import datetime
from pathlib import Path

import pytest
from test_grading_owners import text_of, write, zipped

from distlab.grading import handed_in
from distlab.grading.collect import collect
from distlab.grading.naming import LabNames, clean_name, find_owner, parse_time
from utils.errors import DistributedError

LAB = LabNames("lab05", "lab05-loss-scaling")
NAME = "lab05-loss-scaling.ipynb"


def collected(source, tmp_path, pattern=""):
    found = collect(source, LAB, tmp_path / "kept", pattern)
    return {hand_in.student: hand_in for hand_in in found.hand_ins}, found.notes


def test_nbgraders_layout_with_timestamps(tmp_path):
    source = write(
        tmp_path / "submitted",
        {
            f"ana/lab05/{NAME}": "a",
            "ana/lab05/timestamp.txt": "2026-11-20 10:00:00.25 UTC",
            f"bela/lab05/{NAME}": "b",
            "bela/lab05/timestamp.txt": "yesterday",
            "bela/lab01/lab01-batches.ipynb": "other",
            f"cid/lab05-loss-scaling/{NAME}": "c",
            f"cid/lab05/.ipynb_checkpoints/{NAME}": "checkpoint",
        },
    )
    for place in (source, tmp_path):  # the folder itself, or the nbgrader course
        found, notes = collected(place, tmp_path)
        assert {s: text_of(h) for s, h in found.items()} == {"ana": "a", "bela": "b", "cid": "c"}
        assert found["ana"].timestamp == datetime(2026, 11, 20, 10, 0, 0, 250000)
        assert found["bela"].timestamp is None and "holds no time" in found["bela"].notes[0]
        assert notes == ()  # other labs in nbgrader's own tree are no news


@pytest.mark.parametrize(
    "files, students",
    [
        ({"ana.ipynb": "a", "bela_lab05.ipynb": "b", f"cid-{NAME}": "c"}, ["ana", "bela", "cid"]),
        ({f"ana/{NAME}": "a", f"bela/{NAME}": "b"}, ["ana", "bela"]),
        ({f"week 5/ana/{NAME}": "a", f"week 5/bela/{NAME}": "b"}, ["ana", "bela"]),
        ({"export/ana.ipynb": "a", "export/bela.ipynb": "b"}, ["ana", "bela"]),
        ({"ana.ipynb": "a", "README.txt": "-", "ana.lab01.ipynb": "b"}, ["ana", "ana.lab01"]),
        (
            {
                f"Ana Silva_11_assignsubmission_file/{NAME}": "a",
                f"Bo Li_12_assignsubmission_file_/{NAME}": "b",
            },
            ["Ana Silva", "Bo Li"],
        ),
        ({f"silvaana_501_777_{NAME}": "a", f"libo_late_502_778_{NAME}": "b"}, ["libo", "silvaana"]),
    ],
)
def test_layouts_as_folders_and_as_zips(tmp_path, files, students):
    found, _ = collected(write(tmp_path / "folder", files), tmp_path)
    assert sorted(found) == students
    packed, _ = collected(write(tmp_path, {"all.zip": zipped(files)}) / "all.zip", tmp_path)
    assert sorted(packed) == students
    assert {s: h.sha256 for s, h in packed.items()} == {s: h.sha256 for s, h in found.items()}


@pytest.mark.parametrize("name", ["2024_117", "ana_1_2", "bo_assignsubmission_3"])
def test_a_zip_of_the_course_is_no_platforms_whatever_the_name_in_it(name):
    owner = find_owner((f"lab05-loss-scaling_{name}_20261120-101500.zip",), LAB)
    assert (owner.told, owner.timestamp) == (name, datetime(2026, 11, 20, 10, 15))
    assert find_owner((f"lab01-batches-and-words_{name}_20261120-101500.zip",), LAB) is None


def test_pattern_of_a_platform(tmp_path):
    attempts = (
        ("ana", "2026-01-30-15-00-00"),
        ("ana", "2026-01-31-09-30-00"),
        ("bo", "2026-01-29-09-30-00"),
    )
    names = [f"ps5_{who}_attempt_{when}_x.ipynb" for who, when in attempts] + ["misnamed.ipynb"]
    source = write(tmp_path / "in", {name: name for name in names})
    pattern = r".*_(?P<student_id>\w+)_attempt_(?P<timestamp>[0-9\-]+)_(?P<file_id>\w+)"
    found, notes = collected(source, tmp_path, pattern)
    assert text_of(found["ana"]) == names[1] and found["ana"].timestamp == datetime(
        2026, 1, 31, 9, 30
    )
    assert found["bo"].timestamp == datetime(2026, 1, 29, 9, 30)
    assert any("latest, counts" in note for note in found["ana"].notes)
    assert "'misnamed.ipynb'" in notes[0] and "don't fit the pattern" in notes[0]


@pytest.mark.parametrize("pattern", ["(", r"\w+"])
def test_bad_patterns_are_one_clear_line(tmp_path, pattern):
    write(tmp_path / "in", {"a.ipynb": ""})
    with pytest.raises(DistributedError, match="--pattern") as error:
        collected(tmp_path / "in", tmp_path, pattern)
    assert "\n" not in str(error.value)


def test_the_latest_of_several_counts_and_the_others_are_named(tmp_path):
    files = {f"ana/1/{NAME}": "old", f"ana/2/{NAME}": "new"}
    files |= {"ana/scratch.ipynb": "scratch", f"bo/{NAME}": "b"}
    source = write(tmp_path / "in", files)
    os.utime(source / "ana/1" / NAME, (1_700_000_000, 1_700_000_000))
    found, _ = collected(source, tmp_path)
    notes = " ".join(found["ana"].notes)
    assert text_of(found["ana"]) == "new"
    assert (
        "handed in 2 times" in notes and "'ana/1/" in notes and "scratch.ipynb' was left" in notes
    )


def test_two_students_of_one_name_keep_both_hand_ins(tmp_path):
    source = write(
        tmp_path / "in",
        {
            f"Ana Li_11_assignsubmission_file/{NAME}": "a",
            f"Ana Li_12_assignsubmission_file/{NAME}": "b",
        },
    )
    found, _ = collected(source, tmp_path)
    assert {s: text_of(h) for s, h in found.items()} == {"Ana Li 11": "a", "Ana Li 12": "b"}


def test_wrong_names_are_taken_and_said(tmp_path):
    found, _ = collected(
        write(tmp_path / "in", {"ana/my work (1).ipynb": "a", f"bo/{NAME}": ""}), tmp_path
    )
    assert text_of(found["ana"]) == "a" and "my work (1).ipynb" in found["ana"].notes[0]


def test_what_cannot_be_read_is_reported_and_its_student_is_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(handed_in, "MAX_NOTEBOOK_BYTES", 1000)
    (tmp_path / "secret.ipynb").write_text("gradebook")
    files = {f"good/{NAME}": "fine", f"large/{NAME}": "x" * 2000}
    files |= {"word/essay.docx": "no notebook", f"folder/{NAME}/x": ""}
    source = write(tmp_path / "in", files)
    for name in ("link", "pipe"):
        (source / name).mkdir()
    (source / "link" / NAME).symlink_to(tmp_path / "secret.ipynb")
    (source / "tree").symlink_to(tmp_path)
    os.mkfifo(source / "pipe" / NAME)
    found, _ = collected(source, tmp_path)
    assert text_of(found.pop("good")) == "fine"
    words = {
        "large": "more than",
        "word": "not a notebook",
        "folder": "a folder",
        "link": "a link",
        "pipe": "not a plain file",
        "tree": "a link",
    }
    assert set(found) == set(words)
    for student, word in words.items():
        assert found[student].path is None and word in found[student].problem


def test_a_hostile_zip_writes_nothing_outside_and_stops_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(handed_in, "MAX_NOTEBOOK_BYTES", 10_000)
    source = tmp_path / "all.zip"
    link = zipfile.ZipInfo(f"linus/{NAME}")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    inner = zipped({NAME: "from a zip", "timestamp.txt": "1999-01-01 00:00:00 UTC"})
    with (
        pytest.warns(UserWarning, match="Duplicate"),
        zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        archive.writestr(f"good/{NAME}", "fine")
        archive.writestr(f"twice/{NAME}", "first")
        archive.writestr(f"twice/{NAME}", "second")
        archive.writestr("../../slip.ipynb", "out")
        archive.writestr("/etc/slip.ipynb", "out")
        archive.writestr(f"dots/../../{NAME}", "out")
        archive.writestr("C:\\slip.ipynb", "out")
        archive.writestr(f"bomb/{NAME}", "0" * 5_000_000)
        archive.writestr("packed/work.zip", inner)
        archive.writestr("matryoshka/work.zip", zipped({"again.zip": inner}))
        archive.writestr("broken/work.zip", b"PK\x03\x04 no zip")
        archive.writestr(link, "/etc/passwd")
    before = sorted(tmp_path.parent.rglob("*slip*"))
    found, _ = collected(source, tmp_path)
    assert (
        sorted(tmp_path.parent.rglob("*slip*")) == before and not Path("/etc/slip.ipynb").exists()
    )
    assert text_of(found["good"]) == "fine" and text_of(found["packed"]) == "from a zip"
    assert found["packed"].timestamp is None  # the student packed it
    assert text_of(found["twice"]) == "second"
    words = {
        "bomb": "unpacks to more",
        "linus": "a link",
        "broken": "not read",
        "dots": "outside",
        "matryoshka": "zip in a zip",
    }
    assert all(
        found[name].path is None and word in found[name].problem for name, word in words.items()
    )
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert all(len(name) == 70 and name.endswith(".ipynb") for name in kept)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_zip_member_costs_only_itself(tmp_path, method):
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(f"ana/{NAME}", "a" * 5000)
        archive.writestr(f"bo/{NAME}", "b")
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        place = archive.infolist()[0].header_offset + 30 + len(f"ana/{NAME}")
    data[place : place + 8] = b"\xff" * 8
    path.write_bytes(data)
    found, _ = collected(path, tmp_path)
    assert text_of(found["bo"]) == "b" and "cannot be unpacked" in found["ana"].problem


def test_one_student_cannot_use_up_what_others_may_unpack(tmp_path, monkeypatch):
    monkeypatch.setattr(handed_in, "MAX_BYTES_OF_ONE", 3000)
    monkeypatch.setattr(handed_in, "MAX_FILES_OF_ONE", 20)
    files = {f"eve/{k}.ipynb": "e" * 1000 for k in range(40)} | {f"zoe/{NAME}": "z" * 1000}
    found, notes = collected(write(tmp_path, {"all.zip": zipped(files)}) / "all.zip", tmp_path)
    assert text_of(found["zoe"]) == "z" * 1000 and found["eve"].path is not None
    assert any("more than 20 files" in note for note in notes)


def test_nothing_to_collect_is_one_clear_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.rar").write_text("")
    write(tmp_path / "others", {"ana/lab01/lab01-batches.ipynb": ""})
    words = {"empty": "submission of lab05", "nowhere": "no such", "x.rar": "Unpack"}
    for name, word in (words | {"others": "only files of other labs"}).items():
        with pytest.raises(DistributedError, match=word) as error:
            collected(tmp_path / name, tmp_path)
        assert "\n" not in str(error.value)


def test_names_are_one_line_of_visible_characters():
    assert clean_name("José\n\x1b[31m\u202egpj") == "José\\n\\x1b[31m\\u202egpj"
    assert clean_name("a\udcff") == "a\\udcff" and clean_name(" ") == "(no name)"
    assert len(clean_name("x" * 500)) == 128
    assert clean_name("../../etc") == "_.._etc" and clean_name("..") == "(no name)"
    assert find_owner(("a\nb", "lab05", NAME), LAB).student == "a\\nb"


def test_one_notebook_and_a_students_own_folder(tmp_path):
    source = write(tmp_path / "ana", {NAME: "a"})
    assert list(collected(source, tmp_path)[0]) == ["ana"]
    assert list(collected(source / NAME, tmp_path)[0]) == ["lab05-loss-scaling"]


def test_a_students_own_zip_alone_is_the_students(tmp_path):
    source = write(tmp_path / "in", {"ana.zip": zipped({f"work/{NAME}": "a"})})
    found, _ = collected(source, tmp_path)
    assert {s: text_of(h) for s, h in found.items()} == {"ana": "a"}


def test_the_demonstration_is_a_class_of_nine(tmp_path, monkeypatch):
    from distlab.grading.demo import CLASS, make_class

    monkeypatch.chdir(Path(__file__).parents[2])
    submitted = make_class(tmp_path)
    names = LabNames("lab01", "lab01-batches-and-words")
    found = collect(submitted, names, tmp_path / "kept").hand_ins
    assert len(found) == len(CLASS) + 1 == 9 and found[-1].problem.endswith("not a notebook")
    assert all(hand_in.path and hand_in.timestamp for hand_in in found[:-1])
    assert len({hand_in.sha256 for hand_in in found}) >= 8  # -1 and -7 differ in time only


def test_times():
    assert parse_time("2026-01-30 15:00:00 +0100") == datetime(2026, 1, 30, 14)
    assert parse_time("20260130150000") == datetime(2026, 1, 30, 15)
    assert parse_time("99") is None and parse_time("2026-99-99 1:1:1 UTC") is None
