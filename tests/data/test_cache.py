import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tutorial_lib.data import cache, cache_directory, cached


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TUTORIAL_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def never() -> dict:
    raise AssertionError("made again")


def example() -> dict:
    return {"x": np.arange(6.0).reshape(2, 3), "names": np.array(["a", "bc"])}


def test_made_once_then_read(folder):
    assert cached("thing", example)["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    again = cached("thing", never)
    assert sorted(again) == ["names", "x"]
    for name, array in example().items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)
    assert [path.name for path in folder.iterdir()] == ["thing-1.npz"]  # nothing left aside


def test_numpy_reads_the_file(folder):
    cached("thing", example)
    with np.load(folder / "thing-1.npz", allow_pickle=False) as stored:
        assert sorted(stored.files) == ["names", "sha256", "x"]


def test_another_version_is_made_anew():
    cached("thing", example)
    assert cached("thing", lambda: {"y": np.ones(1)}, version=2).keys() == {"y"}
    assert cached("thing", never).keys() == {"x", "names"}


def flipped(content: bytes, place: float) -> bytes:
    where = int(place * (len(content) - 1))
    return content[:where] + bytes([content[where] ^ 0xFF]) + content[where + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: b"<html>404 not found</html>",
        lambda content: flipped(content, 0.0),
        lambda content: flipped(content, 0.3),
        lambda content: flipped(content, 0.9),
    ],
)
def test_damaged_file_is_made_again_and_one_line_says_so(folder, capsys, damage):
    cached("thing", example)
    path = folder / "thing-1.npz"
    path.write_bytes(damage(path.read_bytes()))
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(cached("thing", example)["x"], example()["x"])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"tutorial_lib: {path} is damaged and is made again\n"
    cached("thing", never)


def test_every_single_damaged_byte_is_noticed_or_harmless(folder, capsys):
    cached("thing", example)
    path = folder / "thing-1.npz"
    content = path.read_bytes()
    for place in np.linspace(0, 1, 97):
        path.write_bytes(flipped(content, place))
        np.testing.assert_array_equal(cached("thing", example)["x"], example()["x"])


def test_a_changed_number_under_a_valid_archive_is_noticed(folder, capsys):
    cached("thing", example)
    path = folder / "thing-1.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["x"][0, 0] = 7
    np.savez(path, **arrays)
    assert cached("thing", example)["x"][0, 0] == 0
    assert "damaged" in capsys.readouterr().err


def test_a_directory_that_cannot_be_written_is_an_error_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("TUTORIAL_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(OSError, match=r"cannot write .*file/below.* TUTORIAL_DATA"):
        cached("thing", never)


def test_a_full_read_only_directory_is_enough(folder, monkeypatch):
    cached("thing", example)
    monkeypatch.setattr(cache, "_open_aside", lambda path: never())
    assert cached("thing", never).keys() == {"x", "names"}


def test_failing_make_leaves_nothing(folder):
    with pytest.raises(AssertionError, match="made again"):
        cached("thing", never)
    assert list(folder.iterdir()) == []


def test_three_processes_at_once(folder):
    script = textwrap.dedent("""
        import sys, time
        import numpy as np
        from tutorial_lib.data import cached

        def make():
            time.sleep(0.3)  # all of them are in here together
            return {"x": np.arange(200_000)}

        for _ in range(3):
            assert cached("thing", make)["x"].sum() == 199_999 * 100_000
        """)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, env=environment)
        for _ in range(3)
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert errors == ["", "", ""]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert [path.name for path in folder.iterdir()] == ["thing-1.npz"]


def test_on_windows_a_file_held_open_by_another_process_is_left_in_place(folder, monkeypatch):
    def held(source, target):
        Path(target).write_bytes(b"theirs")
        raise PermissionError("in use")

    monkeypatch.setattr(os, "replace", held)
    assert cached("thing", example).keys() == {"x", "names"}
    assert (folder / "thing-1.npz").read_bytes() == b"theirs"


@pytest.mark.parametrize(
    ("platform", "variables", "wanted"),
    [
        ("linux", {}, "home/.cache/tutorial_lib"),
        ("linux", {"XDG_CACHE_HOME": "/xdg"}, "/xdg/tutorial_lib"),
        ("darwin", {}, "home/Library/Caches/tutorial_lib"),
        ("win32", {}, "home/AppData/Local/tutorial_lib"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/tutorial_lib"),
        ("linux", {"TUTORIAL_DATA": "/mine"}, "/mine"),
        ("linux", {"TUTORIAL_DATA": "~/mine"}, "home/mine"),
    ],
)
def test_cache_directory(tmp_path, monkeypatch, platform, variables, wanted):
    for name in ("TUTORIAL_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_directory() == tmp_path / wanted


@pytest.mark.bad_input
@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", None])
def test_bad_name(name):
    with pytest.raises(ValueError, match="name must"):
        cached(name, example)


@pytest.mark.bad_input
def test_bad_results_of_make():
    with pytest.raises(ValueError, match="at least one array"):
        cached("thing", dict)
    with pytest.raises(TypeError, match="'x' is not one"):
        cached("thing", lambda: {"x": np.array([{}, None])})
    with pytest.raises(TypeError, match="'x' is not one"):
        cached("thing", lambda: {"x": [1, 2]})
    with pytest.raises(ValueError, match="sha256"):
        cached("thing", lambda: {"sha256": np.ones(1)})
