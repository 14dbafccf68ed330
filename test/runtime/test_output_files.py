"""Files are complete under their names or absent, and failures are explained."""

import os
import stat
from pathlib import Path

import pytest

from lgc_ros.errors import OutputError
from lgc_ros.runtime.output_files import (
    complete_file,
    complete_folder,
    piped_file,
    write_file,
    write_json,
)


def test_a_file_is_written_with_its_folder(tmp_path):
    write_file(tmp_path / "new" / "a.txt", "größer")
    assert (tmp_path / "new" / "a.txt").read_text(encoding="utf-8") == "größer"
    assert os.listdir(tmp_path / "new") == ["a.txt"]


def test_files_have_the_usual_permissions(tmp_path):
    write_file(tmp_path / "a.bin", b"abc")
    (tmp_path / "b.bin").write_bytes(b"abc")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_an_error_while_writing_keeps_what_was_there(tmp_path):
    (tmp_path / "a.txt").write_text("before")
    with pytest.raises(LookupError), complete_file(tmp_path / "a.txt") as temporary:
        {}[temporary.write_text("half")]
    assert os.listdir(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "before"


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "target.txt").write_text("before")
    (tmp_path / "link.txt").symlink_to("target.txt")
    write_file(tmp_path / "link.txt", "after")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "target.txt").read_text() == "after"


def test_a_file_that_does_not_fit_leaves_nothing_behind(tmp_path, little_room):
    with pytest.raises(OutputError, match=r"cannot write .*a\.json: the file is larger than"):
        write_json(tmp_path / "a.json", {"many": list(range(100_000))})
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_named():
    with pytest.raises(OutputError, match="/dev/full: the disk is full; free some space"):
        write_file(Path("/dev/full"), "text")


def test_a_file_in_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(OutputError, match=r"a file, not a folder|already exists"):
        write_file(tmp_path / "taken" / "a.txt", "text")


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(OutputError, match="it is a folder"):
        write_file(tmp_path / "a.txt", "text")
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_appears_when_it_is_complete(tmp_path):
    with complete_folder(tmp_path / "out") as unfinished:
        write_file(unfinished / "a.txt", "text")
        assert not (tmp_path / "out").exists()
    assert os.listdir(tmp_path) == ["out"]
    assert os.listdir(tmp_path / "out") == ["a.txt"]


def test_a_folder_that_cannot_be_completed_is_removed_and_named(tmp_path, little_room):
    message = f"cannot write {tmp_path / 'out'}: the file is larger than"
    with pytest.raises(OutputError, match=message), complete_folder(tmp_path / "out") as folder:
        write_file(folder / "a.txt", "text" * 10_000)
    assert os.listdir(tmp_path) == []


def write_through_pipe(path, data):
    """Write as a library does that opens the name itself."""
    with complete_file(path) as temporary, piped_file(temporary) as name:
        Path(name).write_bytes(data)


def test_a_file_that_a_library_writes_through_a_pipe_is_complete(tmp_path):
    data = os.urandom(300_000)
    write_through_pipe(tmp_path / "a.bin", data)
    assert (tmp_path / "a.bin").read_bytes() == data


def test_a_file_that_a_library_cannot_complete_is_removed_and_named(tmp_path, little_room):
    with pytest.raises(OutputError, match=r"cannot write .*a\.bin: the file is larger"):
        write_through_pipe(tmp_path / "a.bin", os.urandom(300_000))
    assert list(tmp_path.iterdir()) == []
