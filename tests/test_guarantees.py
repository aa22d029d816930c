"""docs/guarantees.md names tests that exist, and every file of tests."""

import ast
import re

import pytest
from conftest import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", PAGE)
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/test_*.py"))


def contents(path):
    """``name`` or ``Class::name`` of every function of a file."""
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from (f"{node.name}::{part.name}" for part in node.body
                        if isinstance(part, ast.FunctionDef))  # fmt: skip


@pytest.mark.parametrize("path", FILES)
def test_every_test_named_exists(path):
    """And is a test, of this file; no file of tests is forgotten."""
    names = {name for file, name in NAMED if file == path}
    assert names
    assert names <= {name for name in contents(path) if name.split("::")[-1].startswith("test_")}


def test_no_other_file_is_named():
    assert {file for file, _ in NAMED} <= set(FILES)
    assert PAGE.count("`tests/") == len(NAMED)  # nothing escapes the pattern


def test_every_promise_has_a_test():
    promises = re.split(r"^- ", PAGE, flags=re.MULTILINE)[1:]
    for promise in promises:
        assert "`tests/" in promise, promise
