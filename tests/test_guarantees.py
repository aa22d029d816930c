"""docs/guarantees.md lists the guarantees that tests are marked with."""

import runpy

from conftest import ROOT


def test_page_is_up_to_date():
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    rendered = runpy.run_path(str(ROOT / "tools" / "guarantees.py"))["render_page"]()
    assert page == rendered, "run python tools/guarantees.py"
