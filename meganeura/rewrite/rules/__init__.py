"""The rewrite rules, by subject. Each is an object with a name, a reason, and egglog text.

There is none for associativity, which lets sums of n terms grow like n!, and commutativity is
spelt out in the patterns that need it.
"""

from __future__ import annotations

from meganeura.rewrite.rules import (
    activations,
    constants,
    identities,
    losses,
    normalization,
    optimizers,
    products,
    shapes,
    sums,
)
from meganeura.rewrite.rules.rule import Rule as Rule

ALL: list[Rule] = [
    *identities.RULES,
    *constants.RULES,
    *shapes.RULES,
    *activations.RULES,
    *losses.RULES,
    *products.RULES,
    *normalization.RULES,
    *optimizers.RULES,
    *sums.RULES,
]

#: What makes formulas stable, and what these rules need to recognise them: applied before
#: differentiation.
STABLE: list[Rule] = [
    *[r for r in identities.RULES if r.name == "constant on the right"],
    *[r for r in shapes.RULES if r.name in shapes.FOR_STABLE],
    *[r for r in activations.RULES if r.replaces],
    *losses.RULES,
]

#: Declarations beside the operations: what rules tell each other.
RELATIONS: tuple[str, ...] = (*activations.RELATIONS, *sums.RELATIONS)
