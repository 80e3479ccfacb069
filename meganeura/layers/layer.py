"""Layer: the base of everything that has weights and can be called (https://keras.io/api/layers/base_layer)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from meganeura import constraints as constraint_family
from meganeura import dtype_policies, dtypes, identifiers, initializers, ops, regularizers
from meganeura.autocast import autocast
from meganeura.dtype_policies import DTypePolicy
from meganeura.graph import trace
from meganeura.graph.node import Node
from meganeura.graph.trace import ConcretizationError
from meganeura.layers import budget, calling
from meganeura.layers.calling import (
    Context,
    InputSpec,
    Signature,
    method_parameters,
    name_scope,
)
from meganeura.layers.constructor import (
    SHAPE_KEYWORDS,
    as_shapes,
    bound_arguments,
    construct,
    first_shape,
    is_plain,
)
from meganeura.layers.tracking import Weighted
from meganeura.masking import get_mask, set_mask
from meganeura.ops.dispatch import any_of, map_tree
from meganeura.ops.registry import scope
from meganeura.recomputation import recompute
from meganeura.symbolic import KerasTensor
from meganeura.tensor import Tensor
from meganeura.variable import Variable


class Layer(Weighted):
    """Weights and a computation on tensors.

    A subclass creates weights in `build(input_shape)` (or its constructor) with `add_weight`, and
    defines `call` with `meganeura.ops`. The same `call` computes on arrays, records a graph while
    a model is being compiled, and wires functional models.

    activity_regularizer: adds a loss on the layer's output
    trainable:            whether training may change the weights
    dtype:                a `DTypePolicy` or its name: in what the layer computes and keeps its weights
    autocast:             whether inputs and weights are cast to the policy's `compute_dtype` in a call
    name:                 unique in a model; made from the class name if not given
    """

    file_class_name: str
    _recompute = False  # set by meganeura.checkpoint
    #: Whether results have the dtype that layers inside, or the user's function, gave them.
    _passes_on = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        layer = super().__new__(cls)
        layer._start_tracking()
        object.__setattr__(
            layer, "_constructor_arguments", bound_arguments(cls, layer, args, kwargs)
        )
        return layer

    def __init__(
        self,
        *,
        activity_regularizer: Any = None,
        trainable: bool = True,
        dtype: Any = None,
        autocast: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ):
        shapes = {k: kwargs.pop(k) for k in SHAPE_KEYWORDS if k in kwargs}
        if kwargs:
            unknown = next(iter(kwargs))
            known = [p.name for p in method_parameters(type(self).__init__) if p.name != "kwargs"]
            hint = identifiers.suggestion(
                unknown, [*known, "name", "dtype", "trainable", "activity_regularizer"]
            )
            raise TypeError(f"layer {type(self).__name__} has no argument {unknown!r}{hint}")
        if name is not None and (not isinstance(name, str) or "/" in name):
            raise ValueError(f"layer {type(self).__name__}: name {name!r} must be text without '/'")
        self._name = name or identifiers.auto_name(type(self).__name__)
        self._dtype_policy = dtype_policies.get(dtype)
        self.autocast = autocast
        self.activity_regularizer = regularizers.get(activity_regularizer)
        self._trainable = bool(trainable)
        # What is ours and makes no weights needs no shapes to be ready.
        own = type(self).__module__.startswith("meganeura.layers.")
        self.built = own and type(self).build is Layer.build
        self.input_spec: Any = None
        self.supports_masking = False
        self._losses: list[Any] = []
        self._inbound_nodes: list[Any] = []
        self._build_shapes: Any = None
        self._first_input_shape = first_shape(shapes)

    # --- identity ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype_policy(self) -> DTypePolicy:
        """In which dtype the layer computes and keeps its weights; weights that are made keep theirs."""
        return self._dtype_policy

    @dtype_policy.setter
    def dtype_policy(self, value: Any) -> None:
        self._dtype_policy = dtype_policies.get(value)

    @property
    def compute_dtype(self) -> str:
        return self._dtype_policy.compute_dtype

    @property
    def variable_dtype(self) -> str:
        return self._dtype_policy.variable_dtype

    @property
    def dtype(self) -> str:
        """The dtype of the weights."""
        return self.variable_dtype

    @property
    def input_dtype(self) -> str:
        """The dtype that inputs of real numbers are cast to."""
        return self.compute_dtype

    @property
    def path(self) -> str:
        return Context.path(self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"

    # --- weights -------------------------------------------------------------------------------

    def add_weight(
        self,
        shape: Any = None,
        initializer: Any = None,
        dtype: Any = None,
        trainable: bool = True,
        autocast: bool = True,
        regularizer: Any = None,
        constraint: Any = None,
        aggregation: Any = None,
        overwrite_with_gradient: bool = False,
        name: str | None = None,
        layout: Any = None,
    ) -> Variable:
        """A new weight of this layer. Floating weights are initialised by glorot_uniform by default."""
        lengths = () if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
        if any(n is None for n in lengths):
            raise ValueError(
                f"layer {self.name!r}: weight {name!r} cannot have the shape {lengths}, since a length "
                "is not known; give the input a definite shape along that axis"
            )
        own = self.variable_dtype if self.variable_dtype in dtypes.FLOATS else "float32"
        kind = dtypes.standardize(dtype or own)
        if initializer is None:
            initializer = "glorot_uniform" if kind in dtypes.FLOATS else "zeros"
        chosen = (
            initializer
            if isinstance(initializer, (np.ndarray, Tensor))
            else initializers.get(initializer)
        )
        name = name or "variable"
        budget.spend(lengths, self.name)
        variable = Variable(
            chosen,
            shape=tuple(int(n) for n in lengths),
            dtype=kind,
            trainable=trainable,
            name=name,
            path=Context.path(name) if Context.owners else f"{self.name}/{name}",
            regularizer=regularizers.get(regularizer),
            constraint=constraint_family.get(constraint),
            autocast=autocast,
        )
        variable.overwrite_with_gradient = overwrite_with_gradient
        self._own_variable(variable)
        if not self._trainable:
            variable.trainable = False
        return variable

    def add_variable(self, *args: Any, **kwargs: Any) -> Variable:
        return self.add_weight(*args, **kwargs)

    # --- building ------------------------------------------------------------------------------

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "build" in cls.__dict__:
            cls.build = _wrapped_build(cls.__dict__["build"])  # type: ignore[method-assign]

    def build(self, input_shape: Any = None) -> None:
        """Create the weights for inputs of this shape. Subclasses override it."""
        self.built = True

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Make the weights for the shapes that `get_build_config` returned."""
        if config and not self.built:
            shapes = as_shapes(config)
            names = [p.name for p in method_parameters(type(self).build)]
            if "shapes_dict" in shapes:
                self.build(**shapes["shapes_dict"])
            elif "input_shape" in shapes and len(names) == 1:
                self.build(shapes["input_shape"])
            elif set(shapes) <= set(names):  # before Keras 3.1
                self.build(**shapes)

    def get_build_config(self) -> dict[str, Any] | None:
        """The shapes that the layer was built with, as Keras 3 writes them."""
        shapes = self._build_shapes
        if shapes is None:
            return None
        if len(shapes) == 1:
            return {"input_shape": next(iter(shapes.values()))}
        return {"shapes_dict": {k: v for k, v in shapes.items() if v is not None}}

    def _ensure_built(self, tensors: dict[str, Any]) -> None:
        if self.built:
            return
        with trace.outside():
            arguments = calling.build_arguments(self, tensors)
            if arguments is not None:
                shapes = map_tree(lambda x: x, arguments)
                self.build(**shapes)
                object.__setattr__(self, "_build_shapes", shapes)
        self.built = True

    # --- calling -------------------------------------------------------------------------------

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The computation, written with `meganeura.ops`. Subclasses define it."""
        raise NotImplementedError(f"layer {type(self).__name__} defines no call()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "_losses" not in self.__dict__:
            raise RuntimeError(
                f"layer {type(self).__name__} was not set up: its __init__ must call super().__init__()"
            )
        args, kwargs = map_tree(calling.as_array, args), map_tree(calling.as_array, kwargs)
        if any_of(KerasTensor, (args, kwargs)):
            from meganeura.models.operation import call_symbolically

            return call_symbolically(self, args, kwargs)
        if trace.current() is not None or any_of(Node, (args, kwargs)):
            return self._record(args, kwargs)
        return self._compute(args, kwargs)

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `call` on nodes (or, when running eagerly, op by op on tensors)."""
        signature = Signature.of(self)
        bound = signature.bind(self, args, kwargs)
        bound = {
            k: map_tree(calling.as_input, v) if k != "training" else v for k, v in bound.items()
        }
        reading = self.compute_dtype if self._casts() else None
        if reading is not None and self._casts_inputs():
            bound = {
                k: map_tree(lambda x: calling.in_dtype(x, reading), v) for k, v in bound.items()
            }
        tensors = calling.tensor_arguments(bound)
        with name_scope(self):
            if tensors:
                calling.check_input_spec(self, next(iter(tensors.values())))
            else:
                calling.refuse_plain_inputs(self, signature, bound)
            self._ensure_built(tensors)
            training = self._resolve_training(signature, bound)
            self._fill_masks(signature, bound, tensors)
            given_mask = bound.get("mask")
            if "mask" in bound and "mask" not in signature.names and not signature.open:
                del bound["mask"]
            extra = bound.pop("*", ())
            with scope(self.name), calling.training_phase(training), autocast(reading):
                positional = []
                if extra:
                    positional = [bound.pop(n) for n in list(signature.positional) if n in bound]
                try:
                    outputs = self.call(*positional, *extra, **bound)
                except (ValueError, TypeError, IndexError, KeyError) as error:
                    shapes = ", ".join(f"{k} {calling.shapes_of(v)}" for k, v in tensors.items())
                    error.add_note(
                        f"in layer {self.name!r} ({type(self).__name__}) called with {shapes}"
                    )
                    raise
            if reading is not None and _gives_own_dtype(self):
                outputs = map_tree(lambda x: calling.in_dtype(x, reading), outputs)
            if self._recompute:
                recompute(outputs, tensors)
            self._finish(outputs, tensors, given_mask)
        return outputs

    def _casts(self) -> bool:
        return self.autocast and self.compute_dtype in dtypes.FLOATS

    def _floats(self) -> str:
        """The dtype of real numbers that the layer makes by itself, such as an initial state."""
        return self.compute_dtype if self.compute_dtype in dtypes.FLOATS else "float32"

    def _casts_inputs(self) -> bool:
        return True

    def _resolve_training(self, signature: Signature, bound: dict[str, Any]) -> bool | None:
        """An explicit argument, else what the caller does, else the default of `call`."""
        given = bound.pop("training", None)
        if given is None:
            given = Context.training
        if given is None:
            given = signature.defaults.get("training")
        if given is not None and not isinstance(given, (bool, int, np.bool_)):
            raise TypeError(
                f"layer {self.name!r} ({type(self).__name__}): training is True, False or None; what "
                "was given for it is none of these"
            )
        if "training" in signature.names:
            bound["training"] = bool(given) if given is not None else False
        return None if given is None else bool(given)

    def _fill_masks(
        self, signature: Signature, bound: dict[str, Any], tensors: dict[str, Any]
    ) -> None:
        """Masks that ride on the inputs become the arguments `mask` or `<input>_mask`."""
        first = True
        for name, value in tensors.items():
            mask_name = "mask" if first else f"{name}_mask"
            own = f"{name}_mask"
            first = False
            for argument in dict.fromkeys((own, mask_name)):
                if argument in signature.names and bound.get(argument) is None:
                    mask = calling.mask_of(value)
                    if mask is not None:
                        bound[argument] = mask
                    break

    def _finish(self, outputs: Any, tensors: dict[str, Any], given_mask: Any) -> None:
        if self.activity_regularizer is not None:
            leaves: list[Any] = []
            map_tree(lambda x: leaves.append(x) if hasattr(x, "shape") else None, outputs)
            for leaf in leaves:
                batch = float(leaf.shape[0]) if leaf.shape else 1.0
                self.add_loss(self.activity_regularizer(leaf) / batch)
        if not tensors:
            return
        first = next(iter(tensors.values()))
        mask = given_mask if given_mask is not None else calling.mask_of(first)
        if mask is None and type(self).compute_mask is Layer.compute_mask:
            return
        if not self.supports_masking and type(self).compute_mask is Layer.compute_mask:
            if mask is not None and any_of((Node, Tensor), mask):
                warnings.warn(
                    f"layer {self.name!r} ({type(self).__name__}) got a mask, and passes none on: it does "
                    "not support masking"
                )
            return
        result = self._output_mask(first, mask, tensors)
        if isinstance(outputs, (list, tuple)) and isinstance(result, (list, tuple)):
            for output, m in zip(outputs, result, strict=False):
                if hasattr(output, "shape"):
                    set_mask(output, m)
        elif hasattr(outputs, "shape") and not isinstance(result, (list, tuple)):
            if get_mask(outputs) is None and outputs is not first:
                set_mask(outputs, result)

    def _output_mask(self, first: Any, mask: Any, tensors: dict[str, Any]) -> Any:
        if type(self).compute_mask is Layer.compute_mask:
            return mask if not isinstance(mask, (list, dict)) else None
        names = [p.name for p in method_parameters(type(self).compute_mask)]
        if len(names) <= 2:
            return self.compute_mask(first, mask)
        by_name = {n: tensors[n] for n in names if n in tensors}
        masks = {n: calling.mask_of(tensors[n.removesuffix("_mask")])
                 for n in names if n.endswith("_mask") and n.removesuffix("_mask") in tensors}  # fmt: skip
        if by_name:
            return self.compute_mask(**by_name, **masks)
        return self.compute_mask(first, mask)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """The mask of the output: the input's own, in layers that support masking."""
        return previous_mask

    def _compute(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run on arrays: the whole call is one plan, unless it looks at values on the way."""
        from meganeura.execution import eagerly, run_call, running_eagerly

        if running_eagerly():
            return self._record(
                map_tree(calling.as_tensor, args), map_tree(calling.as_tensor, kwargs)
            )
        try:
            return run_call(self._record, args, kwargs, self)
        except ConcretizationError:
            self._clear_losses()
            with eagerly():
                return self._record(
                    map_tree(calling.as_tensor, args), map_tree(calling.as_tensor, kwargs)
                )

    # --- losses --------------------------------------------------------------------------------

    def add_loss(self, loss: Any) -> None:
        """Add a scalar (or several) to what training minimises; call it inside `call`."""
        for value in loss if isinstance(loss, (list, tuple)) else [loss]:
            if callable(value) and not hasattr(value, "shape"):
                value = value()
            now = trace.current()
            if now is not None:
                node = ops.convert_to_node(value)
                now.losses.append(ops.sum(node) if node.shape else node)
            else:
                self._losses.append(value)

    def add_metric(self, value: Any, name: str, aggregation: str = "mean") -> None:
        """Follow a value through the steps: the mean of its means appears in the logs under `name`.

        Call it inside `call`. aggregation: "mean" only, as in Keras 2
        """
        from meganeura import metrics

        if not isinstance(name, str) or aggregation != "mean":
            raise ValueError(
                f"layer {self.name!r}: add_metric takes a name and aggregation='mean', got {name!r} and "
                f"{aggregation!r}; for others keep a meganeura.metrics object in an attribute"
            )
        known = {m.name: m for m in self._owned_objects(_is_metric_type())}
        if name not in known:
            known[name] = metrics.Mean(name=name)
            setattr(self, f"_metric_{len(known)}", known[name])
        known[name].update_state(value)

    @property
    def losses(self) -> list[Any]:
        """The losses of the last call, and of the regularizers on trainable weights."""
        collected = [x for layer in self._flatten_layers() for x in layer._losses]
        return [*collected, *self._regularization_losses()]

    def _regularization_losses(self) -> list[Any]:
        return [w.regularizer(w) for w in self.trainable_weights if w.regularizer is not None]

    def _clear_losses(self) -> None:
        for layer in self._flatten_layers():
            layer._losses = []

    @property
    def metrics(self) -> list[Any]:
        """The metrics of this layer and those below."""
        found = list(self._owned_objects(_is_metric_type()))
        for layer in self._layers:
            found += [m for m in layer._metrics_below() if not any(m is f for f in found)]
        return found

    def _metrics_below(self) -> list[Any]:
        """What a layer around this one counts as its metrics; a model leaves out its own."""
        return self.metrics

    # --- shapes --------------------------------------------------------------------------------

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shape of the output for an input shape, found by tracing the call."""
        from meganeura.models.operation import output_spec

        def tensor(shape: Any) -> Any:
            if isinstance(shape, (tuple, list)) and all(
                n is None or isinstance(n, int) for n in shape
            ):
                return KerasTensor(shape, dtype=self._expected_dtype())
            if isinstance(shape, dict):
                return {k: tensor(v) for k, v in shape.items()}
            return [tensor(s) for s in shape]

        by_name = {k.removesuffix("_shape"): tensor(v) for k, v in kwargs.items()}
        spec = output_spec(self, tuple(tensor(a) for a in args), by_name)
        return map_tree(lambda t: t.shape, spec)

    def _expected_dtype(self) -> str:
        return "float32"

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """The KerasTensor(s) that a symbolic call returns."""
        from meganeura.models.operation import output_spec

        return output_spec(self, args, kwargs)

    # --- configs -------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """What `from_config` needs to make this layer again, without its weights."""
        config: dict[str, Any] = {
            "name": self.name,
            "trainable": self._trainable,
            "dtype": dtype_policies.serialize(self.dtype_policy),
        }
        if self.activity_regularizer is not None:
            config["activity_regularizer"] = regularizers.serialize(self.activity_regularizer)
        if (
            getattr(type(self).get_config, "automatic", False)
            and self._constructor_arguments is not None
        ):
            for name, value in self._constructor_arguments.items():
                if name not in config and not is_plain(value):
                    raise NotImplementedError(
                        f"layer {type(self).__name__} takes the argument {name!r}, which cannot be saved by "
                        "itself; define get_config() so that it returns the constructor's arguments"
                    )
                config.setdefault(name, value)
        return config

    get_config.automatic = True  # type: ignore[attr-defined]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The layer that `get_config` described, without its weights."""
        return construct(cls, config)

    # --- functional models ---------------------------------------------------------------------

    def _first_call(self) -> Any:
        if not self._inbound_nodes:
            raise AttributeError(
                f"layer {self.name!r} was never called on a KerasTensor, so it has no input and output; "
                "begin with Input(), or call the layers of a subclassed model on Input() yourself"
            )
        return self._inbound_nodes[0]

    @property
    def input(self) -> Any:
        """What the first symbolic call took."""
        return self._first_call().input

    @property
    def output(self) -> Any:
        """What the first symbolic call returned."""
        return self._first_call().output


def _wrapped_build(build: Callable[..., Any]) -> Callable[..., Any]:
    """`build` as users call it: under the layer's name, marking it built."""

    @functools.wraps(build)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with name_scope(self), trace.outside():
            result = build(self, *args, **kwargs)
        self.built = True
        if self._build_shapes is None:
            names = [p.name for p in method_parameters(build)]
            object.__setattr__(
                self, "_build_shapes", {**dict(zip(names, args, strict=False)), **kwargs}
            )
        return result

    return wrapped


Layer.build = _wrapped_build(Layer.build)  # type: ignore[method-assign]


def _is_metric_type() -> type:
    from meganeura.metrics.metric import Metric

    return Metric


def _gives_own_dtype(layer: Layer) -> bool:
    """Whether this is a layer of ours: it may compute in single precision where that is safer, and its
    results have the dtype of its policy all the same."""
    return type(layer).call.__module__.startswith("meganeura.layers.") and not layer._passes_on


__all__ = ["InputSpec", "Layer"]
