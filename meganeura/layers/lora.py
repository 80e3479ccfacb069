"""LoRA (arXiv 2106.09685): a frozen table of weights, and a product of two thin ones that is trained."""

from __future__ import annotations

from typing import Any

from meganeura import ops
from meganeura.layers.layer import Layer
from meganeura.quantization.layers import Packable
from meganeura.quantization.variable import PackedVariable


class LowRank(Layer):
    """The thin factors a (inputs, rank) and b (rank, outputs): they stand for scale * a b.

    There may be several dimensions of inputs.
    """

    #: Keras's files hold the sum of table and product: where there are no factors, b is zero.
    merged_in_files = True

    def __init__(self, rank: int, alpha: float | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ValueError(f"enable_lora: rank must be a positive integer, got {rank!r}")
        self.rank = rank
        self.alpha = float(rank if alpha is None else alpha)
        self.merged = False

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def add(self, shape: tuple[int, ...], a_initializer: Any, b_initializer: Any) -> None:
        self.a = self.add_weight((*shape[:-1], self.rank), a_initializer, name="lora_a")
        self.b = self.add_weight((self.rank, shape[-1]), b_initializer, name="lora_b")
        self.built = True

    def call(self, x: Any) -> Any:
        """scale * (x a) b."""
        return ops.matmul(ops.matmul(x, self.a), self.b) * self.scale

    def delta(self) -> Any:
        """scale * a b as a node."""
        thin = ops.reshape(self.a, (-1, self.rank))
        return ops.reshape(
            ops.matmul(thin, self.b) * self.scale, (*self.a.shape[:-1], self.b.shape[-1])
        )

    def product(self) -> Any:
        """scale * a b as an array."""
        return self.a.numpy() @ self.b.numpy() * self.scale


class Adaptable(Packable):
    """Mixin for layers with a table of weights (inputs, outputs), `_table`, that LoRA may stand beside."""

    built: bool
    lora: Any = None
    _lora_wanted: dict[str, Any] | None = None

    def _want_lora(self, rank: int | None, alpha: float | None, train_bias: bool = True) -> None:
        """From the constructor: LoRA comes with the weights."""
        if rank:
            self._lora_wanted = {"rank": rank, "lora_alpha": alpha, "train_bias": train_bias}

    def _build_lora(self) -> None:
        if self._lora_wanted is not None:
            self.enable_lora(**self._lora_wanted)

    @property
    def lora_enabled(self) -> bool:
        return self.lora is not None

    @property
    def lora_rank(self) -> int | None:
        return self.lora.rank if self.lora is not None else None

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Any = "he_uniform",
        b_initializer: Any = "zeros",
        train_bias: bool = True,
    ) -> None:
        """Freeze the weights and train alpha/rank * a b beside them, of `rank` columns and rows.

        lora_alpha is the rank where it is not given; train_bias: whether the bias goes on learning.
        Raises ValueError before the layer is built, and where LoRA is on already.
        """
        table = getattr(self, self._table, None)
        if table is None:
            raise ValueError(
                f"layer {self.name!r} is not built yet; call enable_lora when it has its weights"
            )
        if self.lora is not None:
            raise ValueError(f"layer {self.name!r} has LoRA already, of rank {self.lora.rank}")
        lora = LowRank(rank, lora_alpha, name="lora")
        lora.add(table.shape, a_initializer, b_initializer)
        for v in (lora.a, lora.b):
            v.path = f"{table.path.rpartition('/')[0]}/lora/{v.name}"
        table.trainable = False
        bias = getattr(self, "bias", None)
        if bias is not None and not train_bias:
            bias.trainable = False
        self.lora = lora

    def merge_lora(self) -> None:
        """Add alpha/rank * a b to the weights: the layer costs what it cost before, and is as trained."""
        self._move(+1)

    def unmerge_lora(self) -> None:
        """Take it out of the weights again, so that training goes on."""
        self._move(-1)

    def _move(self, sign: int) -> None:
        if self.lora is None:
            raise ValueError(f"layer {self.name!r} has no LoRA; call enable_lora first")
        if self.lora.merged == (sign > 0):
            return
        table = getattr(self, self._table)
        if isinstance(table, PackedVariable):
            raise ValueError(
                f"layer {self.name!r} is packed as {table.format.name}, and LoRA's part in it would be rounded "
                "away: keep the factors beside it, or merge them before you quantize"
            )
        table.assign(table.numpy() + sign * self.lora.product())
        self.lora.merged = sign > 0
        self.lora.trainable = sign < 0

    def _beside(self, x: Any, out: Any) -> Any:
        """out, the product of x with the table, with LoRA's part."""
        if self.lora is None or self.lora.merged:
            return out
        return ops.add(out, self.lora(x))

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        if self.lora is not None:
            config.update(lora_rank=self.lora.rank, lora_alpha=self.lora.alpha)
            bias = getattr(self, "bias", None)
            if bias is not None and not bias.trainable:
                config["lora_train_bias"] = False
        return config
