"""A dense layer whose contraction is written as an einsum equation."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from meganeura import ops
from meganeura.initializers import VarianceScaling
from meganeura.layers.layer import Layer
from meganeura.layers.lora import Adaptable
from meganeura.layers.settings import Settings


class EinsumDense(Adaptable, Settings, Layer):
    """activation(einsum(equation, inputs, kernel) + bias).

    equation:     such as "abc,cd->abd" or "...x,xy->...y"; the ellipsis stands for leading (or
                  trailing) dimensions
    output_shape: the lengths of the output without the batch and without what the ellipsis stands
                  for; None takes the length of the input dimension of the same letter
    bias_axes:    the letters of the output along which there is a bias
    """

    arguments = (
        "output_shape", "equation", "activation", "bias_axes", "kernel_initializer",
        "bias_initializer", "kernel_regularizer", "bias_regularizer", "activity_regularizer",
        "kernel_constraint", "bias_constraint",
    )  # fmt: skip

    def __init__(
        self,
        equation: str,
        output_shape: Any,
        activation: Any = None,
        bias_axes: str | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        activity_regularizer: Any = None,
        **kwargs: Any,
    ):
        if kwargs.pop("gptq_unpacked_column_size", None) is not None:
            raise ValueError("layer EinsumDense: gptq_unpacked_column_size is not offered")
        lora = (kwargs.pop("lora_rank", None), kwargs.pop("lora_alpha", None))
        train_bias = kwargs.pop("lora_train_bias", True)
        kwargs.pop("quantization_config", None)
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self._want_lora(*lora, train_bias)
        self.equation = equation
        sizes = (output_shape,) if isinstance(output_shape, int) else tuple(output_shape)
        self._sizes = sizes
        self.settle(
            activation=activation,
            bias_axes=bias_axes,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )

    @property
    def output_shape(self) -> Any:
        return self._sizes

    def _fail(self, why: str) -> ValueError:
        return ValueError(f"layer {self.name!r}: equation {self.equation!r}: {why}")

    def _letters(self, rank: int) -> tuple[str, str, str, int, bool]:
        """Letters of input, kernel and output with the ellipsis spelled out.

        Also how many letters it stood for, and whether it stands on the right.
        """
        left, arrow, output = self.equation.replace(" ", "").partition("->")
        source, comma, kernel = left.partition(",")
        if not arrow or not comma or "." in kernel:
            raise self._fail("write it as 'input,kernel->output'")
        trailing = source.endswith("...")
        elided = rank - len(source.replace("...", ""))
        if ("..." in source) != ("..." in output) or trailing != output.endswith("..."):
            raise self._fail("the ellipsis must stand on the same side of input and output")
        if ("..." not in source and elided) or elided < 0:
            raise self._fail(f"it does not fit an input of {rank} dimensions")
        used = set(self.equation)
        spare = "".join(c for c in string.ascii_letters if c not in used)[:elided]
        source, output = (x.replace("...", spare) for x in (source, output))
        for letters in (source, kernel, output):
            if not letters.isalpha() or len(set(letters)) < len(letters):
                raise self._fail(f"{letters!r} must be different letters")
        return source, kernel, output, elided, trailing

    def _analyse(self, input_shape: Sequence[int | None]) -> tuple[Any, Any, Any, Any]:
        """Lengths of kernel, bias and output, and (input axes, output axes) of the kernel."""
        source, kernel, output, elided, trailing = self._letters(len(input_shape))
        known = dict(zip(source, input_shape, strict=True))
        # What `output_shape` speaks of: all but the batch and the ellipsis.
        if trailing and elided:
            named = output[1 : len(output) - elided]
        else:
            named = output[max(elided, 1) :]
        if len(named) != len(self._sizes):
            raise self._fail(
                f"output_shape {self._sizes} must give the {len(named)} lengths of {named!r}"
            )
        for letter, size in zip(named, self._sizes, strict=True):
            if size is None and letter in known:
                continue
            before = known.get(letter)
            if before is not None and before != size:
                raise self._fail(f"{letter!r} is {before} in the input but {size} in output_shape")
            known[letter] = size
        missing = [c for c in kernel if known.get(c) is None]
        if missing or any(c not in known for c in output):
            letter = (missing or [c for c in output if c not in known])[0]
            raise self._fail(
                f"the length of {letter!r} does not follow from an input of shape "
                f"{tuple(input_shape)} and output_shape {self._sizes}"
            )
        bias = None
        if self.bias_axes:
            if any(c not in output for c in self.bias_axes):
                raise self._fail(f"bias_axes {self.bias_axes!r} must be letters of the output")
            first = min(output.index(c) for c in self.bias_axes)
            bias = tuple(known[c] if c in self.bias_axes else 1 for c in output[first:])
        axes = (
            [i for i, c in enumerate(kernel) if c not in output],
            [i for i, c in enumerate(kernel) if c in output],
        )
        return tuple(known[c] for c in kernel), bias, tuple(known[c] for c in output), axes

    def build(self, input_shape: Any) -> None:
        kernel, bias, _, (inputs, outputs) = self._analyse(input_shape)
        self._table_inputs = tuple(inputs)
        initializer = self.kernel_initializer
        if isinstance(initializer, VarianceScaling) and initializer.input_axes is None:
            # The fans of a kernel of several dimensions follow from the equation.
            config = {**initializer.get_config(), "seed": initializer.seed}
            config |= {"input_axes": inputs, "output_axes": outputs}
            initializer = type(initializer).from_config(config)
        self.kernel = self._add_table(
            name="kernel",
            shape=kernel,
            initializer=initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.bias = None
        if bias is not None:
            self.bias = self.add_weight(
                name="bias",
                shape=bias,
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                trainable=True,
            )
        self.built = True
        self._build_lora()

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        return self._analyse(input_shape)[2]

    def call(self, inputs: Any) -> Any:
        source, kernel, output, _, _ = self._letters(len(inputs.shape))
        table = self.kernel
        if self.lora is not None and not self.lora.merged:
            table = ops.add(table, self.lora.delta())
        outputs = ops.einsum(f"{source},{kernel}->{output}", inputs, table)
        if self.bias is not None:
            outputs = ops.add(outputs, self.bias)
        return self.activation(outputs)
