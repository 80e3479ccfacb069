"""Activation checkpointing: less memory for more arithmetic (arXiv 1604.06174)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from meganeura.graph.node import Node
from meganeura.graph.regions import mark
from meganeura.ops.dispatch import map_tree
from meganeura.symbolic import KerasTensor

Target = TypeVar("Target", bound=Callable[..., Any])


def checkpoint(target: Target) -> Target:
    """Keep only what goes into `target` and what comes out; compute what lies between again for gradients.

    target: a layer or model, which is changed and returned, so that its every later call does so:
            `x = mg.checkpoint(block)(x)`; or a function of tensors for use inside a layer's `call`

    Results and gradients are the same. Models of many equal blocks keep one tensor for each block
    instead of all of its activations, and make the forward pass twice. Random numbers are the same both
    times. The setting is not part of a layer's configuration.
    """
    from meganeura.layers import Layer

    if isinstance(target, Layer):
        target._recompute = True
        return target

    @functools.wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, KerasTensor) for x in leaves((args, kwargs))):
            raise TypeError(
                "checkpoint: a function has no place in a functional model; call a checkpointed layer on "
                "its symbolic tensors, or the function inside a layer's call"
            )
        outputs = target(*args, **kwargs)
        recompute(outputs, (args, kwargs))
        return outputs

    return call  # type: ignore[return-value]


def recompute(outputs: Any, inputs: Any) -> None:
    """Mark what leads from the nodes among `inputs` to those among `outputs`; arrays are left alone."""
    mark(*([x for x in leaves(tree) if isinstance(x, Node)] for tree in (outputs, inputs)))


def leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    map_tree(found.append, tree)
    return found
