"""Imports only point down."""

import ast
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "seq2seq"

# The rooms from the bottom up: each may import itself and what stands above it in this list,
# except the lowest modules, which must not know each other.
MAY_IMPORT = {
    "files": set(),
    "signals": set(),
    "randomness": set(),
    "device": set(),
    "precision": {"device"},
    "run_folder": set(),
    "config": {"run_folder"},
    "checkpoint": {"files", "config"},
    "data": {"config"},
    "attention": {"config"},
    "model": {"config", "attention"},
    "fast": {"attention", "model"},
    "evaluation": {"config"},
    "figures": {"evaluation", "files"},
}
MAY_IMPORT["search"] = {"attention", "checkpoint", "config", "data", "device", "fast", "model"}
MAY_IMPORT["training"] = {
    *("checkpoint", "config", "data", "device", "evaluation", "figures", "files", "model"),
    *("precision", "randomness", "run_folder", "signals"),
}
MAY_IMPORT["scoring"] = {"data", "evaluation", "figures", "search", "training"}
MAY_IMPORT["tasks"] = {
    *("config", "data", "evaluation", "fast", "model", "run_folder", "scoring", "search"),
    "training",
}
MAY_IMPORT["runs"] = set(MAY_IMPORT)
MAY_IMPORT["benchmark"] = set(MAY_IMPORT)
MAY_IMPORT["cli"] = set(MAY_IMPORT)
MAY_IMPORT["api"] = {"config", "device", "figures", "run_folder", "search"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path):
    """Full names of the modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def part_of(name):
    return name.split(".")[1]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_point_down(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    ours = {part_of(name) for name in imports(path) if name.startswith("seq2seq.")}
    assert part == "__init__" or ours <= MAY_IMPORT[part] | {part}


def test_no_modules_import_each_other():
    names = {
        "seq2seq." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
        for path in MODULES
    }
    graph = {name: set(imports(path)) & set(names) for name, path in names.items()}
    while graph:
        free = [name for name, needed in graph.items() if not needed & set(graph)]
        assert free, f"these modules import each other: {sorted(graph)}"
        for name in free:
            del graph[name]


@pytest.mark.parametrize("library", ["hydra", "omegaconf"])
def test_only_the_command_line_imports_hydra(library):
    users = {
        path.parent.name
        for path in MODULES
        if any(name.split(".")[0] == library for name in imports(path))
    }
    assert users == {"cli"}


@pytest.mark.parametrize("library", ["torch", "torchtext"])
def test_evaluation_imports_no_torch(library):
    for path in (PACKAGE / "evaluation").glob("*.py"):
        assert library not in {name.split(".")[0] for name in imports(path)}


@pytest.mark.guarantee("Only `data` imports torchtext.")
def test_only_data_imports_torchtext():
    for path in MODULES:
        if "torchtext" in {name.split(".")[0] for name in imports(path)}:
            assert path.parent.name == "data"


def test_package_files_hold_a_docstring_and_nothing_else():
    for path in PACKAGE.glob("*/**/__init__.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert len(body) == 1
        assert isinstance(body[0], ast.Expr)


def test_no_module_is_called_utils_or_the_like():
    names = {path.stem for path in MODULES}
    assert not names & {"utils", "helpers", "common", "constants", "misc"}


def test_scripts_only_compose():
    for path in (ROOT / "scripts").glob("*.py"):
        assert len(path.read_text(encoding="utf-8").split("\n")) <= 70, path.name


def test_hydra_version_has_the_private_api_that_is_used():
    """Another version may have moved what seq2seq/cli/hydra_internals.py imports."""
    assert metadata.version("hydra-core").startswith("1.3.")
