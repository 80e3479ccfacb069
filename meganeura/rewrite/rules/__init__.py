"""The rewrite rules, by subject. Each is an object with a name, a reason, and egglog text."""

from __future__ import annotations

from meganeura.rewrite.rules import activations, identities, losses, optimizers, products
from meganeura.rewrite.rules.rule import Rule as Rule

ALL: list[Rule] = [
    *identities.RULES,
    *activations.RULES,
    *losses.RULES,
    *products.RULES,
    *optimizers.RULES,
]
