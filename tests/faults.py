"""Small faults of a module: one operator, number, name, slice or statement is another.

Texts and annotations are left as they are. Knows no tests; see ``mutate``.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

OPERATORS = """
    Lt LtE GtE, LtE Lt Gt, Gt GtE LtE, GtE Gt Lt, Eq NotEq, NotEq Eq, Is IsNot, IsNot Is,
    In NotIn, NotIn In, And Or, Or And, Add Sub, Sub Add, Mult Div, Div Mult, FloorDiv Mod,
    Mod FloorDiv, Pow Mult, BitAnd BitOr, BitOr BitAnd, BitXor BitOr, LShift RShift, RShift LShift
"""
OTHER_OPERATORS = {
    getattr(ast, true): [getattr(ast, other) for other in others]
    for true, *others in map(str.split, OPERATORS.split(","))
}
OTHER_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Fault(NamedTuple):
    """A module with one of them."""

    name: str  # the true line -> the faulty one
    code: CodeType


def replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What might stand in the place of ``node``, were its author careless."""
    for other in OTHER_OPERATORS.get(type(node), ()):
        yield other()
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Name(id=name) if name in OTHER_NAMES:
            yield ast.Name(OTHER_NAMES[name], node.ctx)
        case ast.Attribute(value=value, attr=name) if name in OTHER_NAMES:
            yield ast.Attribute(value, OTHER_NAMES[name], node.ctx)
        case ast.Call(func=ast.Attribute(value=value)) if not isinstance(value, ast.Name):
            yield value
        case ast.IfExp(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.Slice(lower=lower, upper=upper, step=step):
            if lower:
                yield ast.Slice(None, upper, step)
            if upper:
                yield ast.Slice(lower, None, step)
        case ast.AugAssign() | ast.Raise() | ast.Expr(value=ast.Call()):
            yield ast.Pass()


def faults(path: Path) -> Iterator[Fault]:
    """All faults of a file, in the order of their places."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    true_lines = ast.unparse(tree).split("\n")

    def below(parent: ast.AST) -> Iterator[Fault]:
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns") or isinstance(parent, ast.JoinedStr):
                continue
            places = value if isinstance(value, list) else [value]
            for index, node in enumerate(places):
                if not isinstance(node, ast.AST):
                    continue
                for other in replacements(node):
                    changed = [*places[:index], other, *places[index + 1 :]]
                    setattr(parent, field, changed if places is value else other)
                    code = compile(ast.fix_missing_locations(tree), str(path), "exec")
                    lines = zip(true_lines, ast.unparse(tree).split("\n"), strict=False)
                    old, new = next((a, b) for a, b in lines if a != b)
                    yield Fault(f"{old.strip()}  ->  {new.strip()}", code)
                    setattr(parent, field, value)
                yield from below(node)

    return below(tree)


def install(fault: Fault, module: ModuleType) -> None:
    """Put a fault into the very functions of ``module`` that others have imported already."""
    faulty = {"__name__": module.__name__}
    exec(fault.code, faulty)

    def graft(old, new):
        for name, value in new.items():
            if getattr(value, "__module__", None) == module.__name__:
                if isinstance(value, FunctionType):
                    for part in ("__code__", "__defaults__", "__kwdefaults__"):
                        setattr(old[name], part, getattr(value, part))
                elif isinstance(value, type):
                    graft(vars(old[name]), vars(value))
            elif name.isupper() and isinstance(value, dict):
                old[name].update(value)
            elif name.isupper():
                old[name] = value

    graft(vars(module), faulty)
