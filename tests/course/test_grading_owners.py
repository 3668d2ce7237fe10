"""Whose hand-in it is: what a student packs names nobody, and where it is unsure a human is asked.

The forms of names are those that Moodle's mod/assign and Canvas's content_zipper write.
"""

import io
import os
import unicodedata
import zipfile
from datetime import datetime

import pytest

from distlab.cli import main
from distlab.cli.lab_work import pack
from distlab.grading import handed_in
from distlab.grading.collect import collect, set_times
from distlab.grading.naming import LabNames, clean_name
from distlab.grading.roster import read_roster, read_times
from distlab.submission import is_plain_name
from utils.errors import DistributedError

SLUG = "lab01-batches-and-words"
LAB, NAME = LabNames("lab01", SLUG), f"{SLUG}.ipynb"
FAKE = "2026-11-01 00:00:00 UTC"


def zipped(files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def packed(student, content, time="2099-01-01 00:00:00 UTC"):
    """What `distlab submit --name STUDENT` packs."""
    return zipped(
        {f"{student}/{SLUG}/{NAME}": content, f"{student}/{SLUG}/timestamp.txt": time + "\n"}
    )


def gather(source, tmp_path, **more):
    return collect(source, LAB, tmp_path / "kept", **more)


def make_roster(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "students.csv"
    path.write_bytes(text.encode(encoding))
    return read_roster(path)


def by_student(found):
    return {h.student: h for h in found.hand_ins}


def text_of(hand_in):
    return hand_in.path.read_text() if hand_in.path else ""


PLATFORMS = {
    "nbgrader": ("{0}/lab01/", "", {"victim": "victim", "attacker": "attacker"}),
    "moodle": ("{0}_{1}_assignsubmission_file/", "", {"victim": "Bela Bo", "attacker": "Ana Alt"}),
    "moodle 4.0": ("{0}_{1}_assignsubmission_file_/", "", {"victim": "Bela Bo", "attacker": "Ana"}),
    "moodle, flat": ("{0}_{1}_assignsubmission_file_", "", {"victim": "Bela Bo", "attacker": "A"}),
    "canvas": ("{0}_{1}_77{1}_", "", {"victim": "bobela", "attacker": "altana"}),
    "canvas, late": ("{0}_LATE_{1}_77{1}_", "", {"victim": "bobela", "attacker": "altana"}),
    "folders": ("{0}/", "", {"victim": "bela", "attacker": "ana"}),
}


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("as_zip", [False, True])
def test_what_lies_inside_names_nobody_else(tmp_path, platform, as_zip):
    """A folder, a zip, a time of one's own inside: the platform's part decides."""
    place, _, names = PLATFORMS[platform]
    victim, attacker = (place.format(names[who], k) for who, k in (("victim", 1), ("attacker", 2)))
    files = {victim + NAME: "right"}
    for told in (names["victim"], "victim"):
        files[f"{attacker}x_{told}.zip"] = packed(told, "forged")
    if place.endswith("/"):
        files[f"{attacker}{names['victim']}/lab01/{NAME}"] = "forged"
        files[f"{attacker}{names['victim']}/lab01/timestamp.txt"] = FAKE
        files[f"{attacker}{names['victim']}_1_assignsubmission_file/{NAME}"] = "forged"
    if place.endswith("file/"):  # Moodle keeps the folders of what is uploaded
        files |= {f"{part}lab01/timestamp.txt": FAKE for part in (attacker, victim)}
        files |= {f"{attacker}p{k}/lab01/{NAME}": "phantom" for k in range(30)}
    source = write(tmp_path / "in", files)
    if as_zip:
        source = tmp_path / "all.zip"
        source.write_bytes(zipped(files))
    found = by_student(gather(source, tmp_path))
    assert sorted(found) == sorted(names.values())
    mine = found[names["victim"]]
    assert text_of(mine) == "right" and mine.timestamp is None and not mine.question
    assert mine.notes == (("the platform calls it late",) if "late" in platform else ())


def test_a_timestamp_of_ones_own_counts_for_nothing(tmp_path):
    files = {
        "eve/lab01/timestamp.txt": "2026-11-29 12:00:00 UTC",
        f"eve/lab01/late/lab01/{NAME}": "e",
        "eve/lab01/late/lab01/timestamp.txt": FAKE,
        f"eve/late/{SLUG}/late/{SLUG}/{NAME}": "e",
        f"eve/late/{SLUG}/late/{SLUG}/timestamp.txt": FAKE,
        f"bo/x/lab01/{NAME}": "b",
        "bo/x/lab01/timestamp.txt": FAKE,
    }
    found = by_student(gather(write(tmp_path / "in", files), tmp_path))
    assert found["eve"].timestamp == datetime(2026, 11, 29, 12)
    assert found["bo"].timestamp is None


def test_zips_of_submit_in_one_folder_bring_name_and_time(tmp_path):
    lab = write(tmp_path, {NAME: "mine"}) / NAME
    for name in ("ana", "Béla O'Neil", "अदिति", "x" * 128):
        pack(lab, name, tmp_path / "in")
    found = by_student(gather(tmp_path / "in", tmp_path))
    assert sorted(found) == sorted(["ana", "Béla O'Neil", "अदिति", "x" * 128])
    assert all(h.timestamp and "student's zip" in h.clock for h in found.values())
    (one,) = (p for p in (tmp_path / "in").iterdir() if "_ana_" in p.name)
    one.rename(one.with_stem(one.stem + " (1)"))  # downloaded twice
    assert "ana" in by_student(gather(tmp_path / "in", tmp_path))
    alone = gather(next(p for p in (tmp_path / "in").iterdir() if "_ana_" in p.name), tmp_path)
    assert [h.student for h in alone.hand_ins] == ["ana"] and alone.hand_ins[0].timestamp


def test_the_zips_name_wins_over_what_it_holds(tmp_path):
    files = {f"{SLUG}_ana_20261120-101500.zip": packed("bela", "a"), "cid.zip": packed("bela", "c")}
    found = by_student(gather(write(tmp_path / "in", files), tmp_path))
    assert {s: text_of(h) for s, h in found.items()} == {"ana": "a", "cid": "c"}
    assert found["ana"].timestamp == datetime(2026, 11, 20, 10, 15)
    assert found["cid"].timestamp is None


def test_the_latest_of_a_students_own_counts_and_what_cannot_be_compared_waits(tmp_path):
    files = {
        f"{SLUG}_ana_20261120-101500.zip": packed("ana", "first"),
        f"{SLUG}_ana_20261121-101500.zip": packed("ana", "second"),
        "bo.ipynb": "b",
        "bo.zip": packed("bo", "other"),
        "cid.ipynb": "same",
        "cid.zip": packed("cid", "same"),
        "fay.ipynb": "old",
        f"fay/{NAME}": "new",
        f"{SLUG}_student_20261120-101500.zip": packed("student", "s"),
        f"{SLUG}.zip": packed("dora", "d"),
    }
    source = write(tmp_path / "in", files)
    os.utime(source / "fay.ipynb", (1_700_000_000, 1_700_000_000))
    found = by_student(gather(source, tmp_path))
    assert sorted(found) == ["ana", "bo", "cid", "dora", "fay", "student"]
    assert text_of(found["ana"]) == "second" and not found["ana"].question
    assert len(found["ana"].notes) == 1 and "handed in 2 times" in found["ana"].notes[0]
    assert "20261120-101500" in found["ana"].notes[0]
    assert text_of(found["fay"]) == "new" and not found["fay"].question
    assert "which counts?" in found["bo"].question  # a clock of a zip and one of this machine
    assert found["cid"].question == ""  # the same file
    assert "many people share" in found["student"].question
    assert "nothing outside tells whose" in found["dora"].question


@pytest.mark.parametrize("copy", [" (1)", "-Copy1", "-1", " 2", " - Copy", " - Kopie (2)", " copy"])
def test_the_name_of_a_copy_is_the_labs_and_the_latest_counts(tmp_path, copy):
    place = "Ana Alt_11_assignsubmission_file"
    files = {
        f"{place}/{NAME}": "stub",
        f"{place}/{SLUG}{copy}.ipynb": "answers",
        f"{place}/{SLUG}-draft-of-mine.ipynb": "draft",
    }
    source = write(tmp_path / "in", files)
    os.utime(source / place / NAME, (1_700_000_000, 1_700_000_000))
    (ana,) = gather(source, tmp_path).hand_ins
    assert text_of(ana) == "answers" and not ana.question
    assert sum("the latest, counts" in note for note in ana.notes) == 1
    assert any("draft-of-mine.ipynb' was left alone" in note for note in ana.notes)


def test_only_timestamp_txt_is_nbgraders_and_a_second_candidate_waits(tmp_path):
    files = {
        f"ana/lab01/{NAME}": "a",
        "ana/lab01/Timestamp.txt": FAKE,
        "ana/lab01/x-timestamp.txt": FAKE,
        f"bo/lab01/{NAME}": "b",
        "bo/lab01/timestamp.txt": "2026-11-29 12:00:00 UTC",
        "bo/lab01/TIMESTAMP.TXT": FAKE,
        f"cy/{NAME}": "c",
        "cy/lab01/timestamp.txt": "2026-11-29 12:00:00 UTC",
        f"cy/{SLUG}/timestamp.txt": FAKE,
        f"dee/lab01/{NAME}": "d",
        "dee/lab01/timestamp.txt": "2026-11-29 12:00:00 UTC",
        "dee/lab01/Timestamp.txt": "2026-11-29 12:00:00 UTC",
    }
    found = by_student(gather(write(tmp_path / "in", files), tmp_path))
    assert found["ana"].timestamp is None and not found["ana"].question
    for name in ("bo", "cy"):
        assert found[name].timestamp is None and "which one is nbgrader's" in found[name].question
    assert found["dee"].timestamp == datetime(2026, 11, 29, 12) and not found["dee"].question


def test_names_that_become_equal_only_by_normalizing_wait_and_are_all_listed(tmp_path):
    jose = unicodedata.normalize("NFD", "josé")
    names = ["josé", jose, "ana", "ana.", "ana ", "a\\b", "a_b", "x" * 200 + "1", "x" * 200 + "2"]
    files = {f"{name}/lab01/{NAME}": name for name in names}
    found = gather(write(tmp_path / "in", files), tmp_path).hand_ins
    assert sorted(text_of(h) for h in found) == sorted(names)
    assert len({h.student for h in found}) == len(names)
    assert all("look the same" in h.question for h in found)


def test_generic_logins_wait_unless_the_platform_or_the_list_knows_them(tmp_path):
    files = {f"{name}/lab01/{NAME}": name for name in ("jovyan", "root", "user", "ana")}
    source = write(tmp_path / "in", files)
    found = by_student(gather(source, tmp_path))
    assert {s for s, h in found.items() if h.question} == {"jovyan", "root", "user"}
    roster = make_roster(tmp_path, "student,name\nana,Ana Alt\nroot,Ruth Oot\n")
    found = by_student(gather(source, tmp_path, roster=roster))
    assert {s for s, h in found.items() if h.question} == {"jovyan", "user"}


def test_nobody_is_missing_whatever_ids_and_folders_are_called(tmp_path):
    files = {
        f"lab0234567/lab01/{NAME}": "a",
        f"lab02-maria/lab01/{NAME}": "b",
        f"submitted/lab01/{NAME}": "c",
        f"downloaded/lab01/{NAME}": "d",
        "ana.zip": zipped({f"lab04-copy/{NAME}": "e"}),
        "bo.zip": zipped({"lab04-copy/other.txt": "x"}),
        "eva/lab05/lab05-loss-scaling.ipynb": "not this lab",
        "essay.docx": "whose?",
        "grades.csv": "a list",
    }
    found = gather(write(tmp_path / "in", files), tmp_path)
    students = by_student(found)
    assert {s: text_of(h) for s, h in students.items() if h.path} == {
        "lab0234567": "a",
        "lab02-maria": "b",
        "submitted": "c",
        "downloaded": "d",
        "ana": "e",
    }
    assert "eva" in found.absent and "lab05-loss-scaling.ipynb" in found.absent["eva"]
    assert "bo" in found.absent or students["bo"].problem
    assert len(found.notes) == 1 and "'essay.docx'" in found.notes[0]
    assert "whose are they?" in found.notes[0] and "grades.csv" not in found.notes[0]


@pytest.mark.parametrize("place", ["{}_17_assignsubmission_file/", "{}_17_4_"])
@pytest.mark.parametrize("as_zip", [False, True])
def test_a_name_that_begins_with_a_dot_hides_nobody(tmp_path, place, as_zip):
    files = {f"{place.format(student)}{NAME}": "x" for student in (".ana", "bo")}
    source = write(tmp_path / "in", {"all.zip": zipped(files)} if as_zip else files)
    found = gather(source / "all.zip" if as_zip else source, tmp_path)
    assert set(by_student(found)) == {"ana", "bo"}


def test_a_course_without_hand_ins_is_not_searched_elsewhere(tmp_path):
    course = write(tmp_path / "course", {f"source/lab01/{NAME}": "the solution"})
    (course / "submitted").mkdir()
    with pytest.raises(DistributedError, match="must have a submission of lab01"):
        gather(course, tmp_path)


def test_a_student_with_nothing_but_empty_folders_is_listed(tmp_path):
    files = {f"ana/lab01/{NAME}": "a", f"bo/lab01/.ipynb_checkpoints/{NAME}": "old"}
    source = write(tmp_path / "in", files | {"cy/lab02/lab02-strategy-api.ipynb": "x"})
    (source / "dora" / "lab01").mkdir(parents=True)
    (source / "ana" / "lab01" / "data").mkdir()
    deep = "/".join(["x"] * 20)
    write(source, {f"eve/{deep}/{NAME}": "e"})
    found = gather(source, tmp_path)
    students = by_student(found)
    assert {s for s, h in students.items() if h.path} == {"ana"} and students["ana"].notes == ()
    assert "an empty folder" in students["bo"].problem and "empty" in students["dora"].problem
    assert "too deep" in students["eve"].problem and list(found.absent) == ["cy"]


def test_copies_that_the_course_keeps_never_count_before_the_lab(tmp_path):
    course = {"labs/originals/" + NAME: "empty", "labs/" + NAME: "mine", "labs/kept/" + NAME: "old"}
    files = {"ana.zip": zipped(course), "bo/" + "labs/originals/" + NAME: "empty"}
    files |= {f"cid/course/{name}": text for name, text in course.items()}
    files["eve.zip"] = zipped({"labs/" + NAME: "empty", "work/" + NAME: "mine"})
    files["dora.zip"] = zipped({f"x/old/{NAME}": "old", NAME: "mine"})  # of one time
    found = by_student(gather(write(tmp_path / "in", files), tmp_path))
    texts = {"ana": "mine", "bo": "empty", "cid": "mine", "dora": "mine", "eve": "mine"}
    assert {s: text_of(h) for s, h in found.items()} == texts


@pytest.mark.parametrize(
    "inside",
    [
        {"labs/" + NAME: "mine"},
        {
            "labs/" + NAME: "mine",
            "notebooks/00-start-here.ipynb": "-",
            "labs/originals/" + NAME: "-",
        },
    ],
)
def test_the_courses_own_folders_are_no_students(tmp_path, inside):
    alone = write(tmp_path / "in", {f"ana/{name}": text for name, text in inside.items()})
    packed = tmp_path / "ana.zip"
    packed.write_bytes(zipped(inside))
    for source in (alone, alone / "ana", packed):
        found = by_student(gather(source, tmp_path))
        assert {s: text_of(h) for s, h in found.items()} == {"ana": "mine"}, source


def test_one_students_zips_share_one_budget_and_nothing_unused_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(handed_in, "MAX_BYTES_OF_ONE", 4000)
    inner = zipped({f"{k}.ipynb": "e" * 900 for k in range(4)})
    files = {f"eve/{k}.zip": inner.replace(b"e" * 5, b"e" * 5) for k in range(5)}
    files |= {f"zoe/{NAME}": "z", "zoe/old.zip": zipped({NAME: "old"})}
    for name, source in (("folder", write(tmp_path / "in", files)), ("zip", tmp_path / "all.zip")):
        if name == "zip":
            source.write_bytes(zipped(files))
        found = by_student(gather(source, tmp_path))
        assert any("unpacks to more" in note for note in found["eve"].notes)
        assert found["zoe"].path
        kept = set((tmp_path / "kept").iterdir())
        assert kept == {
            h.path for h in found.values() if h.path and h.path.parent in {tmp_path / "kept"}
        }


def test_a_whole_class_in_a_wrapper_has_a_limit_for_each_student(tmp_path, monkeypatch):
    monkeypatch.setattr(handed_in, "MAX_FILES_OF_ONE", 3)
    files = {f"week 5/s{k}/lab01/{NAME}": str(k) for k in range(12)}
    source = tmp_path / "all.zip"
    source.write_bytes(zipped(files))
    found = gather(source, tmp_path)
    assert len(found.hand_ins) == 12 and "'week 5'" in found.notes[0] and len(found.notes) == 1
    files = {f"lab01/s{k}/{NAME}": str(k) for k in range(9)} | {
        "lab02/s1/lab02-strategy-api.ipynb": "other"
    }
    assert len(gather(write(tmp_path / "in", files), tmp_path).hand_ins) == 9


def test_ids_never_meet_whatever_they_are_called(tmp_path):
    files = {f"Ana Li_{k}_assignsubmission_file/{NAME}": str(k) for k in (11, 12)}
    files |= {f"Ana Li 11_99_assignsubmission_file/{NAME}": "99", f"Ana Li 11/{NAME}": "folder"}
    files |= {f"{name}/{NAME}": name for name in ("bo", "bo.", "bo (2)", "bo (2).", "bo (2)..")}
    found = gather(write(tmp_path / "in", files), tmp_path).hand_ins
    assert sorted(text_of(h) for h in found) == sorted(
        ["11", "12", "99", "folder", "bo", "bo.", "bo (2)", "bo (2).", "bo (2).."]
    )
    assert len({h.student for h in found}) == len(found) == 9
    assert not next(h for h in found if text_of(h) == "12").question
    assert all(h.question for h in found if text_of(h).startswith("bo"))


def test_two_with_one_name_of_the_list_wait(tmp_path):
    roster = make_roster(tmp_path, "student,name\nana,Ana Alt\n")
    files = {f"Ana Alt_{k}_assignsubmission_file/{NAME}": str(k) for k in (1, 2)}
    found = gather(write(tmp_path / "in", files), tmp_path, roster=roster).hand_ins
    assert [h.student for h in found] == ["ana", "ana (2)"] and all(h.question for h in found)


def test_a_zip_with_a_huge_list_of_files_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(handed_in, "MAX_DIRECTORY_BYTES", (2**20, 2000))
    many = zipped({f"{k}.txt": "" for k in range(100)})
    files = {"eve.zip": many, f"zoe/{NAME}": "z"}
    monkeypatch.setattr(
        zipfile.ZipFile,
        "_RealGetContents",
        lambda self, real=zipfile.ZipFile._RealGetContents: (
            real(self) if self.fp.seek(0, 2) != len(many) else pytest.fail("it was read")
        ),
    )
    found = by_student(gather(write(tmp_path / "in", files), tmp_path))
    assert "list of files" in found["eve"].problem and found["zoe"].path


def test_two_of_one_name_and_marking_without_names(tmp_path):
    files = {f"Ana Li_{k}_assignsubmission_file/{NAME}": str(k) for k in (11, 12)}
    files |= {f"Participant_{k}_assignsubmission_file/{NAME}": str(k) for k in (21, 22)}
    files |= {f"anon_aB3dE_777_{NAME}": "x", f"LATE_anon_Zz9q1_778_{NAME}": "y"}
    files |= {f"van_der_berg_501_779_{NAME}": "z"}
    found = by_student(gather(write(tmp_path / "in", files), tmp_path))
    assert sorted(found) == [
        "Ana Li 11",
        "Ana Li 12",
        "Participant 21",
        "Participant 22",
        "anon_Zz9q1",
        "anon_aB3dE",
        "van_der_berg",
    ]
    assert not any(h.question for h in found.values())
    assert found["anon_Zz9q1"].notes == ("the platform calls it late",)


@pytest.mark.parametrize("login", ["student", "jovyan", "root", "User"])
def test_submit_asks_for_a_name_where_the_login_is_shared(tmp_path, monkeypatch, capsys, login):
    notebook = write(tmp_path, {"labs/" + NAME: "{}"}) / "labs" / NAME
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGNAME", login)
    assert main(["submit", str(notebook)]) == 2
    said = capsys.readouterr().err
    assert login in said and "--name" in said and said.count("\n") == 1
    assert not (tmp_path / "submissions").exists()


def test_names_that_can_be_part_of_a_files_name():
    for name in ("ana", "Béla O'Neil", "अदिति", "王小明", "ليلى", "a.b-c_d", "S-123"):
        assert is_plain_name(name), name
    for name in ("", " a", "a/b", "..", "a\nb", "a\u202eb", "-x", "x" * 129, "王" * 70):
        assert not is_plain_name(name), name
    for name in ("王" * 100, "x" * 500, "é" * 150):
        assert len(clean_name(name)) <= 128 and len(clean_name(name).encode()) <= 200


CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Lab 1 (99)
    Points Possible,,,,,10
"Alt, Ana",501,s1,aalt,Monday,
"Bo, Béla",502,s2,bbo,Monday,
"Student, Test",503,,x,Monday,
"""
MOODLE = """\ufeffIdentifier,"Full name","Email address",Status,Grade,"Last modified (submission)"
"Participant 11","Ana Alt",a@x.org,"Submitted for grading",,"Wednesday, 10 June 2026, 2:14 PM"
"Participant 12","Béla Bo",b@x.org,"No submission",,-
"""
OWN = "student,name,moodle,canvas\nana,Ana Alt,11,501\nbela,Béla Bo,12,502\n"


@pytest.mark.parametrize(
    "text, ids",
    [
        (OWN, ["ana", "bela"]),
        (CANVAS, ["aalt", "bbo"]),
        (MOODLE, ["a@x.org", "b@x.org"]),
        (OWN.replace(",", ";"), ["ana", "bela"]),
    ],
)
@pytest.mark.parametrize(
    "files",
    [
        {f"Ana Alt_11_assignsubmission_file/{NAME}": "a"},
        {f"altana_501_777_{NAME}": "a"},
        {f"Ana Alt/{NAME}": "a"},
    ],
)
def test_a_list_of_students_gives_ids_and_names_who_handed_in_nothing(tmp_path, text, ids, files):
    other = f"Eve Evil/{NAME}" if "/" in next(iter(files)) else f"eveevil_9_8_{NAME}"
    files, roster = {**files, other: "e"}, make_roster(tmp_path, text)
    found = gather(write(tmp_path / "in", files), tmp_path, roster=roster)
    (mine,) = (h for h in found.hand_ins if text_of(h) == "a")
    assert mine.student == ids[0] and not mine.question and "Ana" in roster.show(mine.student)
    (other,) = (h for h in found.hand_ins if text_of(h) == "e")
    assert "isn't in the list of students" in other.question
    assert found.absent == {ids[1]: "handed in nothing"}


def test_a_namesake_with_another_number_is_not_in_the_list(tmp_path):
    text = "student,name,moodle\nana,Ana Alt,11\n"
    found, _ = gather_class(tmp_path, text, ["Ana Alt_11", "Ana Alt_99"], holds="number")
    assert found["11"].student == "ana" and not found["11"].question
    assert found["99"].student == "Ana Alt" and found["99"].question


CLASS = {"ana": ("Ana Alt", "11"), "jose": ("José Núñez", "12"), "lukasz": ("Łukasz Żak", "13")}


def gather_class(tmp_path, roster_text, folders, encoding="utf-8", holds="name"):
    """Return the submissions by what they hold, a part of the folder's name, and the notes."""
    part = ("name", "number").index(holds)
    files = {f"{f}_assignsubmission_file/{NAME}": f.split("_")[part] for f in folders}
    roster = make_roster(tmp_path, roster_text, encoding)
    found = gather(write(tmp_path / "in", files), tmp_path, roster=roster)
    return {text_of(h): h for h in found.hand_ins}, found.notes


FOLDERS = [f"{name}_{number}" for name, number in CLASS.values()]


def test_a_swapped_column_of_numbers_swaps_nobody(tmp_path):
    numbers = ["12", "13", "11"]
    rows = [f"{id},{name},{n}" for (id, (name, _)), n in zip(CLASS.items(), numbers, strict=True)]
    text = "\n".join(["student,name,moodle", *rows])
    found, _ = gather_class(tmp_path, text, FOLDERS)
    assert {h.student for h in found.values()} == set(CLASS)
    for id, (name, _) in CLASS.items():
        assert found[name].student == id
        assert "by its number" in found[name].question and "by its name" in found[name].question


def test_numbers_of_another_assignment_leave_one_note(tmp_path):
    rows = [f"{id},{name},9{number}" for id, (name, number) in CLASS.items()]
    found, notes = gather_class(tmp_path, "\n".join(["student,name,moodle", *rows]), FOLDERS)
    assert {name: h.student for name, h in found.items()} == {n: i for i, (n, _) in CLASS.items()}
    assert not any(h.question for h in found.values())
    assert len(notes) == 1 and notes[0].startswith("3 students were found by name")
    assert "belong to another assignment" in notes[0]


@pytest.mark.parametrize(
    "head, encoding, sign",
    [
        ("First name,Surname,ID number,Email address", "utf-8", ","),
        ("Vorname,Nachname,ID-Nummer,E-Mail-Adresse", "cp1250", ";"),
        ("Prénom,Nom de famille,Numéro d'identification,Adresse de courriel", "utf-8-sig", ";"),
        ("No.,First name,Last name,ID number,Email address", "utf-16", "\t"),
    ],
)
def test_moodles_participants_are_read_as_they_are_downloaded(tmp_path, head, encoding, sign):
    rows = [
        f"{id.title()}0 {name},S{k},x{k}@uni.example".split(" ", 1)[1].replace(" ", ",", 1)
        for k, (id, (name, _)) in enumerate(CLASS.items())
    ]
    if head.startswith("No."):
        rows = [f"{k},{row}" for k, row in enumerate(rows, 1)]
    text = "\n".join([head, *rows]).replace(",", sign)
    if encoding == "cp1250":  # Excel writes this for Western names
        text, encoding = (
            text.replace("Łukasz Żak", "X").replace("Ł", "L").replace("Ż", "Z"),
            "cp1252",
        )
    found, _ = gather_class(tmp_path, text, FOLDERS, encoding)
    assert {name: h.student for name, h in found.items()} == {
        "Ana Alt": "S0",
        "José Núñez": "S1",
        "Łukasz Żak": "S2",
    }
    assert not any(h.question for h in found.values())


GERMAN = """ID,"Vollständiger Name",E-Mail-Adresse,Status,Bewertung
"Teilnehmer/in11","Ana Alt",a@x.org,Zur Bewertung abgegeben,
"Teilnehmer/in12","José Núñez",j@x.org,Keine Abgabe,
"""
FRENCH = """Identifiant,"Nom complet","Adresse de courriel",Statut,Note
"Participant 11","Ana Alt",a@x.org,Remis pour évaluation,
"Participant 12","José Núñez",j@x.org,Aucune remise,
"""


@pytest.mark.parametrize("text", [GERMAN, FRENCH])
def test_worksheets_of_a_german_and_a_french_moodle(tmp_path, text):
    found = make_roster(tmp_path, text).students
    assert {i: (s.name, s.moodle) for i, s in found.items()} == {
        "a@x.org": ("Ana Alt", "11"),
        "j@x.org": ("José Núñez", "12"),
    }


def test_two_of_one_name_are_shown_with_their_ids_and_accents_can_decide(tmp_path):
    text = "student,name,moodle\na1,Ana Alt,11\na2,Alt Ana,12\nn1,José Nunez,\nn2,José Núñez,\n"
    found, _ = gather_class(tmp_path, text, ["Ana Alt_11", "José Núñez_14"])
    assert found["José Núñez"].student == "n2" and not found["José Núñez"].question
    assert found["Ana Alt"].student == "a1" and not found["Ana Alt"].question
    roster = make_roster(tmp_path, "student,name\na1,Ana Alt\na2,Ana Alt\nb,Bo\n")
    assert [roster.show(s) for s in roster.ids] == ["Ana Alt (a1)", "Ana Alt (a2)", "Bo"]


def test_a_list_of_times_counts_before_all_else(tmp_path):
    files = {
        f"Ana Alt_11_assignsubmission_file/{NAME}": "a",
        f"Béla Bo_12_assignsubmission_file/{NAME}": "b",
    }
    hand_ins = gather(write(tmp_path / "in", files), tmp_path).hand_ins
    path = tmp_path / "times.csv"
    from zoneinfo import ZoneInfo

    path.write_text(MOODLE, encoding="utf-8")
    known, notes = set_times(hand_ins, *read_times(path, ZoneInfo("Europe/Prague")))
    assert [h.timestamp for h in known] == [datetime(2026, 6, 10, 12, 14), None] and notes == []
    path.write_text("student,handed_in\nAna Alt,2026-06-10T12:00\nZoe,2026-06-10 12:00 UTC\n")
    known, notes = set_times(hand_ins, *read_times(path))
    assert known[0].timestamp == datetime(2026, 6, 10, 12) and known[0].clock == "the list of times"
    assert "'Zoe'" in notes[0]
    bad = {
        "student,handed_in\nana,soon\n": "line 2: a time must look like .*, got 'soon'",
        "a,b\n1,2\n": "column",
        "student\nana\n": "must have a column of times",
    }
    for text, said in bad.items():
        path.write_text(text)
        with pytest.raises(DistributedError, match=said):
            read_times(path)


def test_bad_lists_are_one_clear_line(tmp_path):
    for text, said in (
        ("student\nana\nana\n", "line 3: 'ana' is in the list twice"),
        ("color\nred\n", "in a column student, .*, got the columns color"),
        ("student,name\n", "list of students is empty"),
    ):
        with pytest.raises(DistributedError, match=said):
            make_roster(tmp_path, text)
    assert list(make_roster(tmp_path, "student,name\n,Ana\n").ids) == ["Ana"]
    with pytest.raises(DistributedError, match="can't be read"):
        read_roster(tmp_path / "none.csv")


def test_every_name_can_be_written_as_a_folder(tmp_path):
    for raw in ("王" * 100, "é" * 128, "a/b", "..", ".", "CON", "x\0y", "नि" * 60, "\ud800"):
        name = clean_name(raw)
        (tmp_path / name).mkdir(exist_ok=True)
        assert os.listdir(tmp_path)
