"""How a rule is written: patterns over operations, as egglog text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

#: Operations whose attributes rules look at: columns of their own, of these sorts.
COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "constant": (("value", "f64"), ("dtype", "String")),
    "matmul": (("transpose_a", "i64"), ("transpose_b", "i64")),
    "fused_matmul": (("transpose_a", "i64"), ("transpose_b", "i64"), ("activation", "String")),
    "fused_conv": (("activation", "String"),),
    "gelu": (("approximate", "i64"),),
    "cast": (("dtype", "String"),),
}


def constructor(op: str, arity: int) -> str:
    """The name of an operation of so many inputs as an egglog constructor."""
    return f"Op_{op}_{arity}"


def p(op: str, *inputs: str, columns: Sequence[str] = (), rest: str = "0") -> str:
    """A pattern: the operation on these patterns. `rest` is the id of the attributes without a
    column; 0 is "none"."""
    return f"({constructor(op, len(inputs))} {' '.join([*inputs, *columns, rest])})"


def scalar(value: str) -> str:
    """A float constant."""
    return p("constant", columns=(value, '"float32"'))


def both(op: str, a: str, b: str) -> list[str]:
    """A commutative operation in both orders: cheaper than a rule for commutativity."""
    return [p(op, a, b), p(op, b, a)]


@dataclass(frozen=True)
class Rule:
    """lhs and rhs denote the same value wherever all of `when` holds.

    `replaces` True forgets the left side: for rewrites that are better whatever they cost, such
    as forms that do not overflow.
    """

    name: str
    reason: str
    lhs: tuple[str, ...]
    rhs: str
    when: tuple[str, ...] = ()
    replaces: bool = False
    facts: tuple[str, ...] = field(default=())

    def texts(self, number: int = 0) -> Iterable[str]:
        """One egglog rule per left side, named uniquely by `number`."""
        for i, left in enumerate(self.lhs):
            conditions = [f"(= root {left})", *self.when]
            actions = [*self.facts, f"(union root {self.rhs})"]
            if self.replaces:
                actions.append(f"(subsume {left})")
            yield (
                f"(rule ({' '.join(conditions)}) ({' '.join(actions)}) :ruleset opt "
                f':name "{self.name}#{number}.{i}")'
            )


def rule(
    name: str,
    reason: str,
    lhs: str | Sequence[str],
    rhs: str,
    *when: str,
    replaces: bool = False,
    facts: Sequence[str] = (),
) -> Rule:
    sides = (lhs,) if isinstance(lhs, str) else tuple(lhs)
    return Rule(name, reason, sides, rhs, when, replaces, tuple(facts))


def orders(op: str, left: Iterable[str], right: Iterable[str]) -> list[str]:
    """Every pair in both orders."""
    return [t for a, b in itertools.product(left, right) for t in both(op, a, b)]


def same_kind(a: str, b: str, name: str = "q") -> tuple[str, str]:
    """Conditions: both have one shape and dtype."""
    return f"(= {name} (kind {a}))", f"(= {name} (kind {b}))"
