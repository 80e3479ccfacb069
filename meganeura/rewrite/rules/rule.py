"""How a rule is written: patterns over operations, as egglog text.

A pattern is `(Op_<name>_<number of inputs> inputs... columns... rest)`. Columns are the attributes
that rules look into, as numbers or strings; `rest` stands for all other attributes together, as
one interned number, 0 for "none". Small letters are variables; `root` is what the left side denotes.

The facts that conditions may ask for, all of them computed from the graph's own shapes:

    (kind x)              shape and dtype of a value, as one number k
    (shape_of k) (dtype_of k) (rank k) (size k) (last k)     parts of it; `last` is the last length
    (number k)            the shape is ()
    (leads a b)           kind b is kind a with more dimensions of length 1 in front
    (to_shape k)          the attributes of reshape or broadcast_to for the shape of k
    (vector_of k)         for k of shape (1, ..., 1, n): the attributes of a reshape to (n,)
    (vector_kind k)       for k with at most one length over 1, n: the kind of shape (n,)
    (compose a b)         the attributes of a transpose by a, then by b
    (stays a) (swaps a)   a transpose that moves nothing; one that swaps the last two dimensions
    (moves_ones k a)      a transpose of a value of kind k that moves dimensions of length 1 only
    (channel a k)         the last dimension, transposed by a, lies where kind k has its only length
                          over 1: the attributes of a reshape of k to (n,)
    (keeping a)           the attributes of the same reduction that keeps its dimensions
    (kept_shape k a)      the attributes of a reshape to what that reduction of a kind k gives
    (reduced k a)         the kind of the sum of a kind k
    (steady c k a b)      a value of kind c is the same for all elements of the sum of a kind k by a, and
                          fits to the result of the same sum by b, which keeps dimensions or does not
    (lossless d e)        every value of dtype d has an exact counterpart of dtype e
    (unshifted x)         x was not written as `y - maximum`, so that its exponential may overflow
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Operations whose attributes rules look into: columns of their own, of these egglog sorts.
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
    """The pattern of an operation on these patterns."""
    return f"({constructor(op, len(inputs))} {' '.join([*inputs, *columns, rest])})"


def scalar(value: str, dtype: str = '"float32"') -> str:
    """A constant."""
    return p("constant", columns=(value, dtype))


def both(op: str, a: str, b: str) -> list[str]:
    """A commutative operation in both orders: cheaper than a rule for commutativity."""
    return [p(op, a, b), p(op, b, a)]


def orders(op: str, left: Iterable[str], right: Iterable[str]) -> list[str]:
    """Every pair in both orders."""
    return [t for a, b in itertools.product(left, right) for t in both(op, a, b)]


def same_kind(a: str, b: str, name: str = "q") -> tuple[str, str]:
    """Conditions: both have one shape and dtype."""
    return f"(= {name} (kind {a}))", f"(= {name} (kind {b}))"


def near(name: str, value: float) -> tuple[str, str]:
    """Conditions: a constant is `value`, to the digits that people type."""
    return f"(< {name} {value + 2e-6})", f"(> {name} {value - 2e-6})"


def terms(text: str) -> list[str]:
    """The operations that a term consists of, itself included."""
    found, starts = [], []
    for i, character in enumerate(text):
        if character == "(":
            starts.append(i)
        elif character == ")":
            term = text[starts.pop() : i + 1]
            if term.startswith("(Op_"):
                found.append(term)
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Rule:
    """Every left side denotes the same value as `rhs`, wherever all of `when` holds.

    name:     as it is reported
    reason:   why the two are equal, or why the right side is better
    lhs:      patterns; one egglog rule each
    rhs:      a term; None for rules that only note `facts` for others
    when:     conditions
    facts:    actions beside the union, such as the kind of a term inside the right side
    replaces: forget the left side, for right sides that are better whatever they cost: forms
              that do not overflow
    quiet:    a change of form that is not worth a line in the report
    """

    name: str
    reason: str
    lhs: tuple[str, ...]
    rhs: str | None
    when: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    replaces: bool = False
    quiet: bool = False

    def texts(self, number: int = 0) -> Iterable[str]:
        """One egglog rule per left side. Each match notes which operations the rule did away with
        and which it made, for the report."""
        for i, left in enumerate(self.lhs):
            actions = list(self.facts)
            if self.rhs is not None:
                actions.append(f"(union root {self.rhs})")
                if not self.quiet:
                    actions.append(f"(set (Old{left[3:-1]}) {number})")
                    for term in terms(self.rhs):
                        # an even number where this is the result, odd where it is a part of it
                        actions.append(f"(set (New{term[3:-1]}) {2 * number + (term != self.rhs)})")
                if self.replaces:
                    actions.append(f"(subsume {left})")
            conditions = [f"(= root {left})", *self.when]
            yield (
                f"(rule ({' '.join(conditions)}) ({' '.join(actions)}) :ruleset opt "
                f':name "{self.name}#{number}.{i}")'
            )


def rule(
    name: str,
    reason: str,
    lhs: str | Sequence[str],
    rhs: str | None,
    *when: str,
    facts: Sequence[str] = (),
    replaces: bool = False,
    quiet: bool = False,
) -> Rule:
    """A `Rule` with one left side or several."""
    sides = (lhs,) if isinstance(lhs, str) else tuple(lhs)
    return Rule(name, reason, sides, rhs, when, tuple(facts), replaces, quiet)
