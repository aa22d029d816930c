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
# Changes that are no faults: why -> what only the changed line has, or is.
HARMLESS = {
    "any number makes a row without tokens uniform": ("True), 1.0)", "True), -1.0)"),
    "masked_fill broadcasts": (
        "return torch.arange(scores.shape[-1], device=mask.device) >= lengths",
    ),
    "whoever is exactly at the threshold gets 0 either way": ("found < ordered", "clamp(min=-1)"),
    "a bound of no influence, as long as it is 1 below": ("clamp(min=-3)",),
    "NaN is not <= a score either": ("/ count).sqrt()", "clamp(min=-1).sqrt()"),
    "the lengths agree: a guard against our own mistakes": ("strict=False",),
    "the sort of a CPU is always stable": ("stable=False",),
    "an equal that ends later is not better; only steps are saved": (">= best[:, -1:]",),
    "a looser bound searches longer, and finds the same": (
        "scores = endings * length_penalty(length",
    ),
    "who cannot enter is left out alone, not with the whole sentence": (
        "hopeful = totals / largest > best[:, -1:]",
    ),
    "a number of a tensor cuts as one of a list does": ("lengths = last + 1",),
    "all positions have as many places": ("history[-1]",),
    "the only live place may be any": ("totals[:, -1] = 0.0",),
    "to select all rows changes nothing": ("len(going_on) <= len(live)",),
    "sacreBLEU reads four": ("counted[:]", "counted[:5]"),
    "sacreBLEU counts with numbers of numpy as well": (
        "*counted, sys_len, ref_len = np.asarray(statistics, dtype=np.int64)",
    ),
    "a hint to CUDA": ("non_blocking=False",),
    "another random order": ("ROUNDS = 9", "ROUNDS = 7", "right - key", "1 << 63"),
    "poorer mixing: one to one all the same, and no less random than the tests ask": (
        *("x | x >> np.uint64(", "x ^ x << np.uint64(", "10723151780598845932"),
    ),
    "another mixing of bits, as good": (
        *(f"np.uint64({shift})) *" for shift in (31, 29, 28, 26)),
        "return x ^ x >> np.uint64(32)",
        "return x ^ x >> np.uint64(30)",
    ),
    "a network of more numbers, which are walked past": (
        *("max(count + 1, 1)", "max(count - 0, 1)", "+ 2) // 2", "+ 1) // 1"),
    ),
    "of one or two sentences, the same network": ("max(count - 1, 2)", "max(count - 1, 0)"),
    "a larger bucket for one sentence": ("max(count, 2)",),
    "one of the two limits is set": ("limits.tokens or 1", "limits.tokens or -1"),
    "no length is below 1": ("([], 0, 1)", "([], 0, -1)"),
}


class Fault(NamedTuple):
    """A module with one of them."""

    true: str  # line
    faulty: str
    code: CodeType

    def excuse(self) -> str | None:
        """Why it is none."""
        for reason, parts in HARMLESS.items():
            for part in parts:
                if part == self.faulty or (part in self.faulty and part not in self.true):
                    return reason
        return None


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
                    yield Fault(old.strip(), new.strip(), code)
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
