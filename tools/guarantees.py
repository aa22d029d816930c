"""Write docs/guarantees.md from the tests:  python tools/guarantees.py

A test that holds a promise of the program says so with ``@pytest.mark.guarantee("...")``; so may a
class of tests, and a constant at the top of a module may hold the mark. The files are parsed, not
imported, so this takes a moment. A test checks that the page is up to date.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guarantees.md"

INTRODUCTION = """\
# Guarantees

Written by `python tools/guarantees.py` from the tests marked `@pytest.mark.guarantee`; edit the
promise at its test. Each promise is followed by the tests that fail if it is broken. Run one with
`.venv/bin/python -m pytest <name>`. If you find a broken promise and no failing test, please report
it as a bug.
"""

# A promise stands under the first of these folders that has a test of it.
HEADINGS = {
    "attention": "Attention",
    "model": "Model",
    "fast": "Fast path",
    "data": "Text and data",
    "search": "Translation",
    "evaluation": "Metrics and alignments",
    "scoring": "Evaluation on a test set",
    "training": "Training and resuming",
    "tasks": "Tasks",
    "runs": "Runs and comparisons",
    "figures": "Figures",
    "config": "Settings",
    "cli": "Command line",
    "benchmark": "Benchmarks",
    "": "Checkpoints, devices and installation",
}


def render_page() -> str:
    """Return the page: headings, promises below them, and the tests of each promise."""
    promises: dict[str, list[str]] = {}
    for path in sorted(ROOT.glob("tests/**/test_*.py"), key=_position):
        for promise, test in marked_tests(path):
            promises.setdefault(promise, []).append(test)
    sections: dict[str, list[str]] = {heading: [] for heading in HEADINGS.values()}
    for promise, tests in promises.items():
        lines = [f"- {promise}", *(f"  `{test}`" for test in dict.fromkeys(tests))]
        sections[_heading(Path(tests[0].split("::")[0]))] += lines
    written = [
        "\n".join([f"## {name}", "", *lines, ""]) for name, lines in sections.items() if lines
    ]
    return "\n".join([INTRODUCTION, *written])


def marked_tests(path: Path) -> Iterator[tuple[str, str]]:
    """Return the promises of a file of tests, each with the pytest name of the test or class."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    constants = {
        target.id: node.value
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    name = path.relative_to(ROOT).as_posix()
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        yield from ((promise, f"{name}::{node.name}") for promise in _promises(node, constants))
        for method in node.body:
            if isinstance(node, ast.ClassDef) and isinstance(method, ast.FunctionDef):
                for promise in _promises(method, constants):
                    yield promise, f"{name}::{node.name}::{method.name}"


def _promises(
    node: ast.FunctionDef | ast.ClassDef, constants: dict[str, ast.expr]
) -> Iterator[str]:
    for decorator in node.decorator_list:
        mark = constants.get(decorator.id) if isinstance(decorator, ast.Name) else decorator
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.guarantee":
            yield ast.literal_eval(mark.args[0])


def _heading(path: Path) -> str:
    folder = path.relative_to("tests").parent.as_posix()
    return HEADINGS["" if folder == "." else folder]


def _position(path: Path) -> tuple[int, str]:
    relative = path.relative_to(ROOT)
    return list(HEADINGS.values()).index(_heading(relative)), relative.as_posix()


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
