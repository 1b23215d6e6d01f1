"""Sources have the names that git has for them, whether they are committed or not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import sources
from tests.support.sources import ROOT, blobs, is_apart, tree

FILES = {
    "a.py": b"a = 1\n",
    "a/b.py": b"",
    "a/c/d.py": b"d = 1\r\n",
    "a.b/e.py": b"\xff",
    "z.py": "ü = 1\n".encode(),
}
"""A file and a directory of the same beginning: git sorts the directory as if a slash ended its name."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def test_a_file_has_the_id_that_git_has_for_it(root: Path) -> None:
    assert blobs([root]) == {name: git(root, "hash-object", "--no-filters", name) for name in FILES}


def test_a_tree_has_the_id_that_git_has_for_it(root: Path) -> None:
    git(root, "init", "--quiet")
    git(root, "-c", "core.autocrlf=false", "add", ".")
    assert tree(blobs([root])) == git(root, "write-tree")


def test_another_content_name_or_place_is_another_tree() -> None:
    named = [tree(files) for files in ({"a.py": "00"}, {"a.py": "01"}, {"b.py": "00"}, {"a/a.py": "00"}, {})]
    assert len({*named}) == len(named)


def test_a_file_that_was_written_anew_has_another_id(root: Path) -> None:
    before = blobs([root / "a.py"])
    (root / "a.py").write_bytes(b"a = 2\n")
    assert blobs([root / "a.py"]) != before


def test_of_a_directory_the_python_files_count_and_of_others_what_is_named(root: Path) -> None:
    (root / "a" / "notes.md").write_text("notes")
    assert "a/notes.md" not in blobs([root])
    assert "a/notes.md" in blobs([root / "a" / "notes.md"])


def test_what_stands_apart_counts_where_it_is_named_alone() -> None:
    judge = ROOT / "dledger" / "kernels" / "checks.py"
    assert is_apart(judge)
    assert blobs([judge.parent]) == {}
    assert [*blobs([judge])] == ["dledger/kernels/checks.py"]
