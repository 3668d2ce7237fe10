"""The data room: what is bundled, what is found, what is damaged, what is never done."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from process_watch import lives, wait_for

from distlab.cli import OneLineParser
from distlab.cli import data as cli
from utils.data import bundled, catalog, fetch, load, make_tfds_folder, split_batch
from utils.data.catalog import FULL_EXAMPLES, MNIST, TFDS_VERSION
from utils.data.images import ImageData, Split
from utils.data.tfds_folder import (
    cache_folder,
    find_prepared,
    prepare,
    read_prepared,
    standard_folder,
)
from utils.data.verify import list_places
from utils.errors import DistributedError

NAMES = ("fashion_mnist", "mnist")
# The first ten training labels, as anyone who has printed them knows them.
FIRST_LABELS = {
    "fashion_mnist": [9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
    "mnist": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
}
TRAIN_FILE = "mnist-train.tfrecord-00000-of-00001"


@pytest.fixture(scope="module")
def samples() -> dict[str, ImageData]:
    return {name: load(name) for name in NAMES}


@pytest.fixture
def sample_copy(tmp_path: Path) -> Path:
    """A copy of the bundled MNIST that may be damaged: the folder that holds `mnist.npz`."""
    (tmp_path / "bundled").mkdir()
    shutil.copy(bundled.FOLDER / "mnist.npz", tmp_path / "bundled")
    return tmp_path / "bundled"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder, in the place of the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


@pytest.fixture(scope="module")
def small_folder(samples, tmp_path_factory) -> Path:
    """A TFDS data folder with a prepared MNIST of 60 and 20 examples."""
    data = samples["mnist"]
    data = replace(data, train=data.train.take(60), test=data.test.take(20))
    folder = tmp_path_factory.mktemp("prepared")
    prepare(data, folder)
    return folder


@pytest.fixture
def prepared_copy(small_folder, tmp_path) -> Path:
    """A copy of `small_folder` that may be damaged."""
    return shutil.copytree(small_folder, tmp_path / "prepared")


@pytest.fixture
def small(samples, monkeypatch) -> dict[str, ImageData]:
    """Let 60 and 20 real examples stand for the full sets."""
    monkeypatch.setitem(FULL_EXAMPLES, "train", 60)
    monkeypatch.setitem(FULL_EXAMPLES, "test", 20)
    small = {}
    for name, data in samples.items():
        splits = {"train": data.train.take(60), "test": data.test.take(20)}
        small[name] = ImageData(name, "small", True, **splits, class_names=data.class_names)
    return small


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path) -> Path:
    """A machine with an empty TFDS folder; returns it."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    return tmp_path / "tfds"


def write_npz(data: ImageData, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {
        "x_train": data.train.images,
        "y_train": data.train.labels.astype(np.uint8),
        "x_test": data.test.images,
        "y_test": data.test.labels.astype(np.uint8),
    }
    np.savez_compressed(path, **arrays)
    return path


def assert_same(left: ImageData, right: ImageData) -> None:
    for split in ("train", "test"):
        np.testing.assert_array_equal(getattr(left, split).images, getattr(right, split).images)
        np.testing.assert_array_equal(getattr(left, split).labels, getattr(right, split).labels)


def assert_one_line(error: pytest.ExceptionInfo, *parts: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


# What is bundled


@pytest.mark.parametrize("name", NAMES)
def test_bundled_sample_has_the_promised_form(samples, name):
    data = samples[name]
    assert (data.name, data.full) == (name, False)
    assert data.source == "bundled sample (TFDS 3.0.1)"
    assert str(data) == (
        f"{name}: 10,000 training and 2,000 test examples from the bundled sample (TFDS 3.0.1)"
    )
    for split, examples in ((data.train, 10_000), (data.test, 2_000)):
        assert split.images.dtype == np.uint8 and split.images.shape == (examples, 28, 28)
        assert split.labels.dtype == np.int64 and split.labels.shape == (examples,)
        assert set(split.labels) == set(range(10)) and len(split) == examples
    assert len(data.class_names) == 10 and isinstance(data.class_names, tuple)
    assert data.train.labels[:10].tolist() == FIRST_LABELS[name]
    assert load(name.replace("_", "-").title()).name == name


@pytest.mark.parametrize("name", NAMES)
def test_bundle_has_a_license_and_is_small(name):
    license = (bundled.FOLDER / f"{name}.LICENSE").read_text(encoding="utf-8")
    word = {"fashion_mnist": "Zalando SE", "mnist": "creativecommons.org/licenses/by-sa/3.0/"}
    assert word[name] in license and "first 10,000 training" in " ".join(license.split())
    assert (bundled.FOLDER / f"{name}.npz").stat().st_size < 5_300_000
    assert sorted(p.suffix for p in bundled.FOLDER.iterdir()) == [".LICENSE"] * 2 + [".npz"] * 2


@pytest.mark.parametrize("name", NAMES)
def test_np_load_reads_the_bundled_file_by_the_keys_of_keras(samples, name):
    with np.load(bundled.FOLDER / f"{name}.npz") as arrays:
        assert sorted(arrays) == ["x_test", "x_train", "y_test", "y_train"]
        assert {array.dtype for array in arrays.values()} == {np.dtype(np.uint8)}
        np.testing.assert_array_equal(arrays["x_train"], samples[name].train.images)
        np.testing.assert_array_equal(arrays["y_test"], samples[name].test.labels)


def test_data_is_read_only_and_take_shortens_only_the_training_examples(samples):
    data = samples["mnist"]
    with pytest.raises(ValueError, match="read-only"):
        data.train.images[0, 0, 0] = 1
    few = data.take(7)
    assert (len(few.train), len(few.test), few.name) == (7, 2_000, "mnist")
    np.testing.assert_array_equal(few.train.images, data.train.images[:7])
    assert few.train.labels.tolist() == FIRST_LABELS["mnist"][:7]
    assert len(data.take(10_000).train) == 10_000
    for count in (0, -1, 10_001):
        with pytest.raises(DistributedError) as error:
            data.take(count)
        assert_one_line(error, str(count), "1 to 10,000")


def test_split_refuses_other_types_and_lengths():
    images, labels = np.zeros((3, 28, 28), np.uint8), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="uint8"):
        Split(images.astype(np.float32), labels)
    with pytest.raises(ValueError, match="int64"):
        Split(images, labels[:2])


def test_loading_needs_no_network_and_no_tensorflow():
    """TensorFlow's runtime must not start: the device split and strategies come after."""
    program = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('network used')\n"
        "socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse\n"
        "from utils.data import load\n"
        "for name in ('fashion_mnist', 'mnist'): print(load(name))\n"
        "for name in ('tensorflow', 'tensorflow_datasets', 'keras'):\n"
        "    assert name not in sys.modules, name\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("10,000 training") == 2 and done.stderr == ""


# A damaged bundle is named, and left as it is


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def flip_one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def overwrite_with_text(path: Path) -> None:
    path.write_text("<html>404</html>", encoding="utf-8")


@pytest.mark.parametrize(
    "damage", [cut_short, flip_one_bit, empty, overwrite_with_text, Path.unlink]
)
def test_damaged_bundled_file_is_named_with_its_cure_and_not_touched(sample_copy, damage):
    path = sample_copy / "mnist.npz"
    damage(path)
    before = path.read_bytes() if path.exists() else None
    for read in (bundled.load_bundled, bundled.verify_bundled):
        with pytest.raises(DistributedError) as error:
            read("mnist", sample_copy)
        assert_one_line(error, str(path), "git checkout")
    assert (path.read_bytes() if path.exists() else None) == before


def change_arrays(path: Path, **changes: np.ndarray) -> None:
    with np.load(path) as arrays:
        np.savez_compressed(path, **{**arrays, **changes})


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"y_train": np.zeros(10_000, np.uint8)[:9]}, "damaged"),
        ({"x_test": np.zeros((2_000, 28, 28))}, "damaged"),
        ({"x_test": np.zeros((9, 28, 28), np.uint8), "y_test": np.zeros(9)}, "must hold"),
    ],
)
def test_arrays_that_are_not_the_sample_are_named(sample_copy, change, part):
    change_arrays(sample_copy / "mnist.npz", **change)
    with pytest.raises(DistributedError) as error:
        bundled.load_bundled("mnist", sample_copy)
    assert_one_line(error, str(sample_copy / "mnist.npz"), part, "git checkout")


def test_verify_notices_one_changed_label_in_a_file_that_loads(sample_copy, samples):
    assert bundled.verify_bundled("mnist", sample_copy).full is False
    labels = samples["mnist"].train.labels.astype(np.uint8)
    change_arrays(sample_copy / "mnist.npz", y_train=np.where(np.arange(10_000) == 0, 6, labels))
    assert bundled.load_bundled("mnist", sample_copy).train.labels[0] == 6
    with pytest.raises(DistributedError) as error:
        bundled.verify_bundled("mnist", sample_copy)
    assert_one_line(error, str(sample_copy / "mnist.npz"), "SHA-256", "git checkout")


# The TFDS folder of the sample


def test_tfds_reads_the_same_from_the_folder_made_of_the_sample(samples, cache, monkeypatch):
    """500 of the 10,000 training examples, and all others; the next test makes MNIST's."""
    import tensorflow_datasets as tfds

    name = "fashion_mnist"
    sample = samples[name].take(500)
    monkeypatch.setattr("utils.data.tfds_folder.load_bundled", {name: sample}.__getitem__)
    prepared = tfds.builder_from_directory(make_tfds_folder(name))
    assert prepared.info.splits["train"].num_examples == 500
    assert prepared.info.splits["test"].num_examples == 2_000
    assert prepared.info.features["label"].names == list(sample.class_names)
    assert prepared.info.supervised_keys == ("image", "label")
    for split in ("train", "test"):
        batch = prepared.as_dataset(split=split, batch_size=-1)  # images: [examples, 28, 28, 1]
        mine = getattr(sample, split)
        np.testing.assert_array_equal(batch["image"].numpy()[..., 0], mine.images)
        np.testing.assert_array_equal(batch["label"].numpy(), mine.labels)


def test_tfds_folder_is_made_once_by_two_processes_at_the_same_time_offline(cache, write_warm):
    """Both begin once both have imported; they take 500 of the 10,000 training examples."""
    program = (
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('network used')\n"
        "socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse\n"
        "from utils.data import make_tfds_folder, tfds_builder, tfds_folder\n"
        "load = tfds_folder.load_bundled\n"
        "tfds_folder.load_bundled = lambda name: load(name).take(500)\n"
        "print('ready', flush=True), input()\n"
        "print(make_tfds_folder('mnist'))\n"
    )
    command, pipes = write_warm(program), {"stdin": -1, "stdout": -1, "stderr": -1}
    both = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]
    assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    shown = [process.communicate(timeout=200) for process in both]
    assert [process.returncode for process in both] == [0, 0], shown
    (folder,) = {output.strip() for output, _ in shown}
    assert shown[0][1] == shown[1][1] == "" and str(cache) in folder
    assert [path.name for path in Path(folder).parent.iterdir()] == [TFDS_VERSION]
    before = {path: path.stat().st_mtime_ns for path in Path(folder).iterdir()}
    assert str(make_tfds_folder("mnist")) == folder  # found, not made again
    assert {path: path.stat().st_mtime_ns for path in Path(folder).iterdir()} == before


def test_tfds_folder_of_the_sample_is_never_taken_for_the_full_set(nothing_installed, tmp_path):
    assert not cache_folder().is_relative_to(standard_folder())


def test_cache_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DistributedError) as error:
        make_tfds_folder("mnist")
    assert_one_line(error, str(tmp_path / "file"), "can't be written")


# Prepared TFDS folders


def cut_at_a_record(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: 16 + int.from_bytes(content[:8], "little")])


def wreck_a_length(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(b"\xff" * 8 + content[8:])


def wreck_a_picture(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"IDAT") + 8] ^= 0xFF
    path.write_bytes(content)


def repeat_the_file(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


@pytest.mark.parametrize(
    "damage",
    [cut_short, cut_at_a_record, wreck_a_length, wreck_a_picture, repeat_the_file, empty]
    + [overwrite_with_text, Path.unlink],
)
def test_damaged_records_are_named(prepared_copy, damage):
    path = prepared_copy / "mnist" / TFDS_VERSION / TRAIN_FILE
    damage(path)
    with pytest.raises(DistributedError) as error:
        read_prepared(path.parent, MNIST)
    assert_one_line(error, str(path))


def describe_splits(train: str) -> dict:
    names = {"train": train, "test": "20"}
    return {"splits": [{"name": n, "shardLengths": [count]} for n, count in names.items()]}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"name": "fashion_mnist"}, "must hold mnist, got fashion_mnist"),
        ({"fileFormat": "array_record"}, "array_record"),
        ({"splits": []}, "split 'train'"),
        ({"splits": [{"name": "train", "shardLengths": ["60"]}]}, "split 'test'"),
        (describe_splits("x"), "shardLengths"),
        (describe_splits("999999999999"), "damaged"),
        (describe_splits("-5"), "damaged"),
    ],
)
def test_wrong_description_of_a_prepared_folder_is_named(prepared_copy, change, part):
    path = prepared_copy / "mnist" / TFDS_VERSION / "dataset_info.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}), encoding="utf-8")
    with pytest.raises(DistributedError) as error:
        read_prepared(path.parent, MNIST)
    assert_one_line(error, str(path.parent), part)
    for text in ("[]", "{}", "not json"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DistributedError) as error:
            read_prepared(path.parent, MNIST)
        assert_one_line(error, str(path))


def test_prepared_sample_is_not_taken_for_the_full_set(prepared_copy):
    with pytest.raises(DistributedError) as error:
        load("mnist", full=True, folder=prepared_copy)
    assert_one_line(error, "holds 60", "60,000")


def test_newest_version_of_a_prepared_folder_is_found(tmp_path):
    for version in ("1.0.0", "3.0.1", "3.0.10", "3.1.0.incompleteX"):
        (tmp_path / "mnist" / version).mkdir(parents=True)
        (tmp_path / "mnist" / version / "dataset_info.json").touch()
    (tmp_path / "mnist" / "9.0.0").mkdir()  # without a description: never finished
    newest = tmp_path / "mnist" / "3.0.10"
    assert find_prepared(tmp_path, "mnist") == newest
    assert find_prepared(tmp_path / "mnist", "mnist") == newest
    assert find_prepared(newest, "mnist") == newest
    assert find_prepared(tmp_path, "fashion_mnist") is None


# prepare, and where the full set is taken from


def test_prepared_folder_reads_back_and_is_not_overwritten(small, tmp_path):
    folder = prepare(small["fashion_mnist"], tmp_path / "tfds")
    assert folder == tmp_path / "tfds" / "fashion_mnist" / TFDS_VERSION
    data = load("fashion_mnist", full=True, folder=tmp_path / "tfds")
    assert_same(data, small["fashion_mnist"])
    assert data.source == f"TFDS folder {folder}" and data.full
    text = (folder / "dataset_info.json").read_text(encoding="utf-8")
    assert str(tmp_path) not in text
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(DistributedError) as error:
        prepare(small["fashion_mnist"], tmp_path / "tfds")
    assert_one_line(error, str(folder), "isn't overwritten")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(folder.parent.iterdir()) == [folder]  # nothing temporary is left


def test_full_set_is_sought_in_order(small, tmp_path, nothing_installed):
    data = small["fashion_mnist"]
    prepared = prepare(data, nothing_installed)
    assert load("fashion_mnist", full=True).source == f"TFDS folder {prepared}"
    named = write_npz(data, tmp_path / "named.npz")
    given = load("fashion_mnist", full=True, folder=named)
    assert given.full and given.source == f"file {named}"
    assert_same(given, data)
    flip_one_bit(prepared / "fashion_mnist-train.tfrecord-00000-of-00001")
    with pytest.raises(DistributedError) as error:  # damage is named, not passed over
        load("fashion_mnist", full=True)
    assert_one_line(error, str(prepared))


@pytest.mark.parametrize("damage", [cut_short, empty, overwrite_with_text, Path.unlink])
def test_a_damaged_npz_file_is_named(small, tmp_path, damage):
    path = write_npz(small["mnist"], tmp_path / "mnist.npz")
    damage(path)
    with pytest.raises(DistributedError) as error:
        load("mnist", full=True, folder=path)
    assert_one_line(error, str(path))


def test_a_sample_as_npz_is_not_taken_for_the_full_set(sample_copy):
    with pytest.raises(DistributedError) as error:
        load("mnist", full=True, folder=sample_copy / "mnist.npz")
    assert_one_line(error, "holds 10,000", "60,000")


def test_a_full_set_that_is_missing_is_named_with_what_gets_it(nothing_installed, tmp_path):
    with pytest.raises(DistributedError) as error:
        load("fashion_mnist", full=True)
    assert_one_line(error, "isn't on this machine", "distlab data fetch fashion-mnist")
    with pytest.raises(DistributedError) as error:
        load("mnist", full=True)
    assert_one_line(error, "MNIST isn't on this machine", "distlab data fetch mnist")
    with pytest.raises(DistributedError) as error:
        load("mnist", full=True, folder=tmp_path)
    assert_one_line(error, str(tmp_path), "no prepared TFDS folder", "x_train")
    with pytest.raises(DistributedError, match="full=True"):
        load("mnist", folder=tmp_path)


# fetch


HANGING = (
    "import subprocess, sys, time; "
    "child = subprocess.Popen(['sleep', '600']); "
    "open(sys.argv[2] + '/../children', 'w').write(str(child.pid)); time.sleep(600)"
)


def test_hanging_download_is_stopped_with_all_its_processes(tmp_path, monkeypatch):
    told, wait = tmp_path / "tfds" / "children", subprocess.Popen.wait

    def wait_once_it_hangs(process: subprocess.Popen, timeout: float | None = None) -> int:
        wait_for(lambda: told.exists() and told.stat().st_size)
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_once_it_hangs)
    with pytest.raises(DistributedError) as error:
        fetch.fetch("mnist", tmp_path / "tfds", 0.5, [sys.executable, "-c", HANGING])
    assert_one_line(error, "MNIST", "0.5 s", "--timeout")
    wait_for(lambda: not lives(int(told.read_text())))
    assert list((tmp_path / "tfds").iterdir()) == [told]


def test_failed_download_gives_one_line_and_leaves_nothing(tmp_path):
    failing = [sys.executable, "-c", "raise SystemExit('first\\nthe server is on fire')"]
    with pytest.raises(DistributedError) as error:
        fetch.fetch("mnist", tmp_path, 120, failing)
    assert_one_line(error, "MNIST", "the server is on fire")
    with pytest.raises(DistributedError) as error:
        fetch.fetch("mnist", tmp_path, 120, [sys.executable, "-c", "pass"])
    assert_one_line(error, "no prepared folder")
    with pytest.raises(DistributedError, match="must be above 0 seconds"):
        fetch.fetch("mnist", tmp_path, 0)
    assert list(tmp_path.iterdir()) == []


def test_real_download_without_a_network_says_so(tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # a port where nobody listens
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DistributedError) as error:
        fetch.fetch("mnist", tmp_path, 300)
    assert_one_line(error, "MNIST", "Is there a network?", "cannot be reached")
    assert list(tmp_path.iterdir()) == []


COPYING = (
    "import shutil, sys; source, name, folder = sys.argv[1:4]; "
    "shutil.copytree(source + '/' + name, folder + '/' + name)"
)


def test_download_is_checked_put_in_place_and_not_repeated(small, tmp_path, nothing_installed):
    prepared = prepare(small["mnist"], tmp_path / "server")
    command = [sys.executable, "-c", COPYING, str(tmp_path / "server")]
    folder = fetch.fetch("mnist", seconds=120, command=command)
    assert folder == nothing_installed / "mnist" / TFDS_VERSION
    assert_same(load("mnist", full=True), small["mnist"])
    with pytest.raises(DistributedError) as error:
        fetch.fetch("mnist", seconds=120, command=command)
    assert_one_line(error, str(folder), "isn't overwritten")
    shutil.rmtree(nothing_installed / "mnist")
    wreck_a_picture(prepared / TRAIN_FILE)
    with pytest.raises(DistributedError, match="corrupt"):
        fetch.fetch("mnist", seconds=120, command=command)
    assert list(nothing_installed.iterdir()) == []


# verify, and the command


def test_places_say_what_is_verified_and_what_is_damaged(sample_copy, nothing_installed):
    (place,) = list_places("mnist", sample_root=sample_copy)
    assert (place.kind, place.state, place.problem) == ("bundled sample", "verified", None)
    assert (place.train_examples, place.test_examples) == (10_000, 2_000)
    path = sample_copy / "mnist.npz"
    assert place.folder == str(path)
    flip_one_bit(path)
    (place,) = list_places("mnist", sample_root=sample_copy)
    assert (place.state, place.train_examples) == ("damaged", None)
    assert str(path) in place.problem
    (place,) = list_places("mnist", check=False, sample_root=sample_copy)
    assert place.state == "found"


def distlab(*arguments: str) -> int:
    parser = OneLineParser(prog="distlab")
    cli.add_parser(parser.add_subparsers(dest="command"))
    parsed = parser.parse_args(["data", *arguments])
    return parsed.run(parsed)


@pytest.fixture
def small_sample(small, tmp_path, monkeypatch) -> Path:
    """Samples of 12 and 5 examples in the place of the bundled ones."""
    monkeypatch.setitem(catalog.SAMPLE_EXAMPLES, "train", 12)
    monkeypatch.setitem(catalog.SAMPLE_EXAMPLES, "test", 5)
    for name, data in small.items():
        few = replace(data, train=data.train.take(12), test=data.test.take(5))
        path = write_npz(few, tmp_path / "samples" / f"{name}.npz")
        checksum = bundled.sample_sha256(bundled.load_bundled(name, path.parent))
        monkeypatch.setitem(vars(catalog.DATA_SETS[name]), "sample_sha256", checksum)
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "samples")
    return tmp_path / "samples"


def test_command_shows_and_verifies(small, small_sample, nothing_installed, capsys):
    prepare(small["mnist"], nothing_installed)
    assert distlab() == 0
    output = capsys.readouterr()
    lines = [" ".join(line.split()) for line in output.out.splitlines()]
    assert len(lines) == 5 and output.err == ""
    assert lines[1].startswith("fashion_mnist bundled sample 12 5 verified")
    assert lines[3].startswith("mnist TFDS folder 60 20 verified")
    assert "distlab data fetch fashion_mnist" in lines[4]
    for arguments in (("--json",), ("show", "--json"), ("verify", "--json")):
        assert distlab(*arguments) == 0
        found = json.loads(capsys.readouterr().out)
        assert [place["state"] for place in found] == ["verified"] * 3


def test_command_verify_ends_with_1_and_names_the_file(
    sample_copy, nothing_installed, monkeypatch, capsys
):
    path = sample_copy / "mnist.npz"
    cut_short(path)
    monkeypatch.setattr(bundled, "FOLDER", sample_copy)
    assert distlab("verify", "mnist") == 1
    assert f"damaged: {path}" in capsys.readouterr().out
    assert distlab("verify", "mnist", "--json") == 1
    assert str(path) in json.loads(capsys.readouterr().out)[0]["problem"]


SPLITS = """
import json
import tensorflow as tf
from utils.devices import use_logical_devices

use_logical_devices(8)
options = tf.data.Options()
options.autotune.enabled = False
batches = tf.data.Dataset.range(1, 65).map(lambda examples: tf.range(examples))
some = tf.data.Dataset.range(26).batch(10)
found = []
for replicas in range(2, 9):
    strategy = tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(replicas)])
    for data in (batches, some):
        for batch in strategy.experimental_distribute_dataset(data.with_options(options)):
            parts = strategy.experimental_local_results(batch)
            found.append([len(part) for part in parts])
print(json.dumps(found))
"""


def test_a_batch_is_split_as_tensorflow_splits_it(write_warm) -> None:
    """Every batch of 1 to 64 examples on 2 to 8 replicas."""
    done = subprocess.run(write_warm(SPLITS), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sizes = [*range(1, 65), 10, 10, 6]
    wanted = [split_batch(size, replicas) for replicas in range(2, 9) for size in sizes]
    assert json.loads(done.stdout.splitlines()[-1]) == wanted
    assert split_batch(0, 3) == [0, 0, 0]
