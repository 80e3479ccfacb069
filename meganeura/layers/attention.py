"""Attention with trainable projections: multi-head and grouped-query."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from meganeura import ops
from meganeura.layers.activation import Softmax
from meganeura.layers.einsum_dense import EinsumDense
from meganeura.layers.layer import Layer
from meganeura.layers.regularization import Dropout
from meganeura.layers.settings import Settings, as_tuple
from meganeura.masking import get_mask, set_mask

_LETTERS = string.ascii_lowercase


def allowed_pairs(
    query: Any,
    value: Any,
    query_mask: Any = None,
    value_mask: Any = None,
    key_mask: Any = None,
    attention_mask: Any = None,
    causal: bool = False,
    window: int | None = None,
) -> Any:
    """Which query may look at which key, as booleans (batch or 1, queries, keys); None: all may."""
    parts = []
    if query_mask is not None:
        parts.append(ops.expand_dims(ops.cast(query_mask, "bool"), -1))
    for mask in (value_mask, key_mask):
        if mask is not None:
            parts.append(ops.expand_dims(ops.cast(mask, "bool"), -2))
    if causal or window is not None:
        rows = ops.reshape(ops.arange(query.shape[1], dtype="int32"), (1, -1, 1))
        columns = ops.reshape(ops.arange(value.shape[1], dtype="int32"), (1, 1, -1))
        if causal:
            parts.append(ops.less_equal(columns, rows))
        if window is not None:
            parts.append(ops.less(ops.abs(ops.subtract(rows, columns)), window))
    if attention_mask is not None:
        parts.append(ops.cast(attention_mask, "bool"))
    result = None
    for part in parts:
        result = part if result is None else ops.logical_and(result, part)
    return result


class _Attention(Settings, Layer):
    """What both kinds share: making projections, and softmax with masks and dropout."""

    def _prepare(
        self, kind: str, dropout: float, window: int | None, seed: Any, flash: bool | None
    ) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"layer {kind}: dropout must be at least 0 and below 1, got {dropout}")
        if flash and dropout > 0:
            raise ValueError(f"layer {kind}: flash_attention and dropout exclude each other")
        self._flash_attention = flash  # a promise not to ask for scores: kernels are chosen by cost
        if window is not None:
            as_tuple(kind, "sliding_window", window, 1)
        self.supports_masking = True
        self.dropout = dropout
        self.sliding_window = window
        self.seed = seed

    def _project(
        self,
        name: str,
        equation: str,
        output_shape: Sequence[int | None],
        bias_axes: str,
        activation: Any = None,
    ) -> EinsumDense:
        # Each projection has initializers of its own: one object would give all the same values.
        return EinsumDense(
            equation,
            output_shape=tuple(output_shape),
            bias_axes=bias_axes if self.use_bias else None,
            activation=activation,
            name=name,
            kernel_initializer=_copy(self.kernel_initializer),
            bias_initializer=_copy(self.bias_initializer),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            activity_regularizer=self.activity_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
        )

    def _check_shapes(self, query_shape: Any, value_shape: Any, key_shape: Any) -> None:
        """Keys and values belong together one by one."""
        key_shape = value_shape if key_shape is None else key_shape
        if tuple(value_shape[1:-1]) != tuple(key_shape[1:-1]):
            raise ValueError(
                f"layer {self.name!r}: key and value must agree but for their last axis, got the "
                f"shapes {tuple(key_shape)} and {tuple(value_shape)}"
            )

    @staticmethod
    def _build_child(layer: Layer, shape: Any) -> None:
        if not layer.built:
            layer.build(tuple(shape))
            layer.built = True

    def _weigh(self, scores: Any, mask: Any, training: Any, keep_scores: bool) -> tuple[Any, Any]:
        """Attention weights from scores: with dropout for the sum, and as they are."""
        if keep_scores and self._flash_attention:
            raise ValueError(
                f"layer {self.name!r}: return_attention_scores needs scores, which flash_attention=True "
                "promises not to ask for"
            )
        if mask is not None:
            mask = ops.convert_to_tensor(mask)
            axis = -2 * len(self._softmax_axes) - 1  # the heads
            while mask.ndim < scores.ndim:
                mask = ops.expand_dims(mask, axis)
        if self.dropout == 0 and not keep_scores and scores.ndim == 4:
            # Where a query may look at no key, every key gets the same weight.
            if mask is not None:
                scores = ops.where(mask, ops.cast(scores, "float32"), -1e9)
            weights = ops.cast(ops.softmax(scores, axis=-1), self.compute_dtype)
            return weights, weights
        weights = self._softmax(scores, mask=mask)
        if self.dropout > 0:
            return self._dropout_layer(weights, training=training), weights
        return weights, weights

    def compute_mask(self, query: Any, *_: Any, **__: Any) -> Any:
        return get_mask(query)


def _copy(initializer: Any) -> Any:
    clone = getattr(initializer, "clone", None)
    return clone() if clone else initializer


class MultiHeadAttention(_Attention):
    """Scaled dot-product attention of several heads.

    Each head projects query, key and value, weighs the values by softmax(q k^T / sqrt(key_dim)),
    and the results are projected to `output_shape` (by default the query's features). Call it as
    layer(query, value, key=value). Masks are combined by "and": query_mask and value_mask (also
    those that ride on the inputs), attention_mask (batch, queries, keys), use_causal_mask,
    sliding_window. `attention_axes` are the axes of a query of more dimensions to attend over.
    """

    arguments = (
        "num_heads", "key_dim", "value_dim", "dropout", "use_bias", "use_gate", "output_shape",
        "attention_axes", "sliding_window", "kernel_initializer", "bias_initializer",
        "kernel_regularizer", "bias_regularizer", "activity_regularizer", "kernel_constraint",
        "bias_constraint", "seed",
    )  # fmt: skip

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: Any = None,
        attention_axes: Any = None,
        sliding_window: int | None = None,
        flash_attention: Any = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        use_gate: bool = False,
        seed: Any = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        kind = type(self).__name__
        self._prepare(kind, dropout, sliding_window, seed, flash_attention)
        self.num_heads = as_tuple(kind, "num_heads", num_heads, 1)[0]
        self.key_dim = as_tuple(kind, "key_dim", key_dim, 1)[0]
        value_dim = key_dim if value_dim is None else value_dim
        self.value_dim = as_tuple(kind, "value_dim", value_dim, 1)[0]
        shape = (output_shape,) if isinstance(output_shape, int) else output_shape
        if not isinstance(shape, (list, tuple, type(None))):
            raise ValueError(
                f"layer {kind}: output_shape must be an integer, a list of them or None, got "
                f"{output_shape!r}"
            )
        self._output_sizes = None if shape is None else tuple(shape)
        axes = (attention_axes,) if isinstance(attention_axes, int) else attention_axes
        self.attention_axes = None if axes is None else tuple(axes)
        self.settle(
            use_bias=use_bias,
            use_gate=use_gate,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )

    @property
    def output_shape(self) -> Any:
        return self._output_sizes

    def build(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> None:
        key_shape = value_shape if key_shape is None else key_shape
        self._check_shapes(query_shape, value_shape, key_shape)

        def project(name: str, shape: Any, size: int, activation: Any = None) -> EinsumDense:
            rank = len(shape)
            free, bound, heads = _LETTERS[: rank - 1], _LETTERS[rank - 1], _LETTERS[rank : rank + 2]
            sizes = [None] * (rank - 2) + [self.num_heads, size]
            equation = f"{free}{bound},{bound}{heads}->{free}{heads}"
            return self._project(name, equation, sizes, heads, activation)

        self.query_dense = project("query", query_shape, self.key_dim)
        self._build_child(self.query_dense, query_shape)
        self.key_dense = project("key", key_shape, self.key_dim)
        self._build_child(self.key_dense, key_shape)
        if self.use_gate:
            self.gate_dense = project("gate", query_shape, self.value_dim, "sigmoid")
            self._build_child(self.gate_dense, query_shape)
        self.value_dense = project("value", value_shape, self.value_dim)
        self._build_child(self.value_dense, value_shape)
        rank = len(query_shape) + 1  # of a projected query
        self._set_equations(rank)
        sizes = self._output_sizes or (query_shape[-1],)
        free, bound = _LETTERS[: rank - 2], _LETTERS[rank - 2 : rank]
        out = _LETTERS[rank : rank + len(sizes)]
        self.output_dense = self._project(
            "attention_output",
            f"{free}{bound},{bound}{out}->{free}{out}",
            [None] * (rank - 3) + list(sizes),
            out,
        )
        self._build_child(self.output_dense, (*query_shape[:-1], self.num_heads, self.value_dim))
        self.built = True

    def _set_equations(self, rank: int) -> None:
        """How queries and keys of `rank` dimensions (batch, ..., heads, features) are multiplied."""
        axes = self.attention_axes or tuple(range(1, rank - 2))
        axes = tuple(a if a >= 0 else rank - 1 + a for a in axes)
        queries = _LETTERS[:rank]
        keys = list(queries)
        for i, axis in enumerate(axes):
            keys[axis] = _LETTERS[rank + i]
        batch = [queries[i] for i in range(rank - 1) if i not in axes]
        scores = "".join(batch + [queries[a] for a in axes] + [keys[a] for a in axes])
        source = "".join(keys)
        self._score_equation = f"{source},{queries}->{scores}"
        self._sum_equation = f"{scores},{source}->{queries}"
        count = len(batch) + 2 * len(axes)
        self._softmax_axes = tuple(range(count - len(axes), count))
        self._softmax = Softmax(axis=self._softmax_axes, dtype=self.dtype_policy)
        self._dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: Any = None,
        use_causal_mask: bool = False,
    ) -> Any:
        key = value if key is None else key
        own = get_mask(query)
        mask = allowed_pairs(
            query,
            value,
            query_mask,
            value_mask,
            key_mask,
            attention_mask,
            use_causal_mask,
            self.sliding_window,
        )
        queries = ops.multiply(self.query_dense(query), self.key_dim**-0.5)
        keys, values = self.key_dense(key), self.value_dense(value)
        scores = ops.einsum(self._score_equation, keys, queries)
        weights, shown = self._weigh(scores, mask, training, return_attention_scores)
        outputs = ops.einsum(self._sum_equation, weights, values)
        if self.use_gate:
            outputs = ops.multiply(outputs, self.gate_dense(query))
        outputs = self.output_dense(outputs)
        if own is not None:
            set_mask(outputs, own)
        return (outputs, shown) if return_attention_scores else outputs

    def compute_output_shape(
        self, query_shape: Any, value_shape: Any, key_shape: Any = None
    ) -> tuple[int | None, ...]:
        self._check_shapes(query_shape, value_shape, key_shape)
        if self._output_sizes:
            return (*query_shape[:-1], *self._output_sizes)
        return tuple(query_shape)


class GroupedQueryAttention(_Attention):
    """Multi-head attention in which groups of query heads share one key and value head.

    Query head i uses key head i // (num_query_heads / num_key_value_heads). Otherwise as
    `MultiHeadAttention`, for inputs (batch, time, features).
    """

    arguments = (
        "head_dim", "num_query_heads", "num_key_value_heads", "use_bias", "use_gate",
        "sliding_window", "dropout", "kernel_initializer", "bias_initializer",
        "kernel_regularizer", "bias_regularizer", "activity_regularizer", "kernel_constraint",
        "bias_constraint", "seed",
    )  # fmt: skip

    def __init__(
        self,
        head_dim: int,
        num_query_heads: int,
        num_key_value_heads: int,
        dropout: float = 0.0,
        use_bias: bool = True,
        sliding_window: int | None = None,
        flash_attention: Any = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        use_gate: bool = False,
        seed: Any = None,
        **kwargs: Any,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        kind = type(self).__name__
        self._prepare(kind, dropout, sliding_window, seed, flash_attention)
        self.head_dim = as_tuple(kind, "head_dim", head_dim, 1)[0]
        self.num_query_heads = as_tuple(kind, "num_query_heads", num_query_heads, 1)[0]
        self.num_key_value_heads = as_tuple(kind, "num_key_value_heads", num_key_value_heads, 1)[0]
        if self.num_query_heads % self.num_key_value_heads:
            raise ValueError(
                f"layer {kind}: num_query_heads ({num_query_heads}) must be a multiple of "
                f"num_key_value_heads ({num_key_value_heads})"
            )
        self.settle(
            use_bias=use_bias,
            use_gate=use_gate,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )
        self._softmax_axes = (3,)

    def build(self, query_shape: Any, value_shape: Any, key_shape: Any = None) -> None:
        key_shape = value_shape if key_shape is None else key_shape
        self._check_shapes(query_shape, value_shape, key_shape)

        def project(name: str, shape: Any, heads: int, activation: Any = None) -> EinsumDense:
            layer = self._project(
                name, "btm,mhd->bthd", (None, heads, self.head_dim), "hd", activation
            )
            self._build_child(layer, shape)
            return layer

        self._query_dense = project("query", query_shape, self.num_query_heads)
        self._key_dense = project("key", key_shape, self.num_key_value_heads)
        if self.use_gate:
            self._gate_dense = project("gate", query_shape, self.num_query_heads, "sigmoid")
        self._value_dense = project("value", value_shape, self.num_key_value_heads)
        self._softmax = Softmax(axis=-1, dtype=self.dtype_policy)
        self._dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)
        self._output_dense = self._project(
            "attention_output", "bthd,hdm->btm", (None, query_shape[-1]), "m"
        )
        self._build_child(
            self._output_dense,
            (query_shape[0], query_shape[1], self.num_query_heads, self.head_dim),
        )
        self.built = True

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: Any = None,
        use_causal_mask: bool = False,
    ) -> Any:
        key = value if key is None else key
        mask = allowed_pairs(
            query,
            value,
            query_mask,
            value_mask,
            key_mask,
            attention_mask,
            use_causal_mask,
            self.sliding_window,
        )
        repeats = self.num_query_heads // self.num_key_value_heads
        queries = ops.multiply(self._query_dense(query), self.head_dim**-0.5)
        keys = ops.repeat(self._key_dense(key), repeats, axis=2)
        values = ops.repeat(self._value_dense(value), repeats, axis=2)
        scores = ops.einsum("bqhd,bkhd->bhqk", queries, keys)
        weights, shown = self._weigh(scores, mask, training, return_attention_scores)
        outputs = ops.einsum("bhqk,bkhd->bqhd", weights, values)
        if self.use_gate:
            outputs = ops.multiply(outputs, self._gate_dense(query))
        outputs = self._output_dense(outputs)
        return (outputs, shown) if return_attention_scores else outputs

    def compute_output_shape(
        self, query_shape: Any, value_shape: Any, key_shape: Any = None
    ) -> tuple[int | None, ...]:
        self._check_shapes(query_shape, value_shape, key_shape)
        return tuple(query_shape)
