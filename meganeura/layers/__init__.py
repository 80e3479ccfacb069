"""Layers, by Keras's names (https://keras.io/api/layers)."""

from __future__ import annotations

import importlib
from typing import Any

from meganeura import identifiers
from meganeura.layers.calling import InputSpec as InputSpec
from meganeura.layers.input_layer import Input as Input
from meganeura.layers.input_layer import InputLayer as InputLayer
from meganeura.layers.layer import Layer as Layer

#: Module -> the layers and functions that it defines; loaded when first asked for.
_MODULES: dict[str, str] = {
    "core": "Activation Dense Embedding Identity Lambda Masking",
    "activation": "ELU LeakyReLU PReLU ReLU Softmax",
    "convolution": (
        "Conv1D Conv2D Conv3D DepthwiseConv1D DepthwiseConv2D SeparableConv1D SeparableConv2D "
        "Conv1DTranspose Conv2DTranspose Conv3DTranspose"
    ),
    "pooling": (
        "MaxPooling1D MaxPooling2D MaxPooling3D AveragePooling1D AveragePooling2D AveragePooling3D "
        "GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D GlobalAveragePooling1D "
        "GlobalAveragePooling2D GlobalAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D "
        "AdaptiveMaxPooling3D AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D"
    ),
    "normalization": (
        "BatchNormalization LayerNormalization GroupNormalization RMSNormalization UnitNormalization"
    ),
    "spectral": "SpectralNormalization",
    "merging": (
        "Add Subtract Multiply Average Maximum Minimum Concatenate Dot add subtract multiply average "
        "maximum minimum concatenate dot"
    ),
    "reshaping": (
        "Flatten Reshape Permute RepeatVector ZeroPadding1D ZeroPadding2D ZeroPadding3D Cropping1D "
        "Cropping2D Cropping3D UpSampling1D UpSampling2D UpSampling3D"
    ),
    "regularization": (
        "Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D GaussianNoise GaussianDropout "
        "AlphaDropout ActivityRegularization"
    ),
    "attention": "MultiHeadAttention GroupedQueryAttention",
    "dot_attention": "Attention AdditiveAttention",
    "einsum_dense": "EinsumDense",
    "recurrent": "RNN SimpleRNN LSTM GRU Bidirectional TimeDistributed",
    "conv_lstm": "ConvLSTM1D ConvLSTM2D ConvLSTM3D",
    "recurrent_cells": "SimpleRNNCell LSTMCell GRUCell StackedRNNCells",
    "preprocessing": "Rescaling Normalization CategoryEncoding Discretization",
    "augmentation": (
        "RandomFlip RandomRotation RandomZoom RandomTranslation RandomContrast RandomBrightness RandomCrop"
    ),
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}
_ALIASES = {
    "MaxPool1D": "MaxPooling1D",
    "MaxPool2D": "MaxPooling2D",
    "MaxPool3D": "MaxPooling3D",
    "AvgPool1D": "AveragePooling1D",
    "AvgPool2D": "AveragePooling2D",
    "AvgPool3D": "AveragePooling3D",
    "GlobalMaxPool1D": "GlobalMaxPooling1D",
    "GlobalMaxPool2D": "GlobalMaxPooling2D",
    "GlobalMaxPool3D": "GlobalMaxPooling3D",
    "GlobalAvgPool1D": "GlobalAveragePooling1D",
    "GlobalAvgPool2D": "GlobalAveragePooling2D",
    "GlobalAvgPool3D": "GlobalAveragePooling3D",
    "Convolution1D": "Conv1D",
    "Convolution2D": "Conv2D",
    "Convolution3D": "Conv3D",
    "Convolution1DTranspose": "Conv1DTranspose",
    "Convolution2DTranspose": "Conv2DTranspose",
    "Convolution3DTranspose": "Conv3DTranspose",
    "SeparableConvolution1D": "SeparableConv1D",
    "SeparableConvolution2D": "SeparableConv2D",
    "GroupQueryAttention": "GroupedQueryAttention",
}


def __getattr__(name: str) -> Any:
    target = _ALIASES.get(name, name)
    if target not in _WHERE:
        if name.startswith("__"):
            raise AttributeError(name)
        hint = identifiers.suggestion(name, [*_WHERE, *_ALIASES, "Input", "Layer"])
        raise AttributeError(f"meganeura.layers has no {name!r}{hint}")
    value = getattr(importlib.import_module(f"meganeura.layers.{_WHERE[target]}"), target)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_WHERE, *_ALIASES, "Input", "InputLayer", "InputSpec", "Layer"])


def serialize(layer: Any) -> dict[str, Any]:
    """A layer or model as Keras 3 describes it in JSON."""
    kind = type(layer)
    registered = identifiers.registered_name(kind)
    builtin = kind.__module__.startswith("meganeura.")
    module = _MODULES_OF_MODELS.get(kind.__name__, "keras.layers")
    config = {
        "module": module if builtin else kind.__module__,
        "class_name": kind.__name__,
        "config": layer.get_config(),
        "registered_name": registered,
    }
    if hasattr(layer, "get_build_config") and (build := layer.get_build_config()):
        config["build_config"] = build
    return config


#: Where Keras 3 has its models, for it looks there.
_MODULES_OF_MODELS = {"Sequential": "keras", "Functional": "keras.src.models.functional", "Model": "keras"}
_MODELS = tuple(_MODULES_OF_MODELS)


def _find(name: str, config: dict[str, Any], custom_objects: Any) -> Any:
    for candidate in (config.get("registered_name"), name):
        if candidate and (found := identifiers.custom_object(str(candidate), custom_objects)):
            return found
    if name in _MODELS:
        from meganeura import models

        return getattr(models, name)
    if name == "InputLayer":
        return InputLayer
    try:
        return __getattr__(name)
    except AttributeError:
        hint = identifiers.suggestion(name, [*_WHERE, *_ALIASES, *_MODELS])
        raise ValueError(
            f"the configuration names the layer {name!r}, which is not known{hint}; pass it in "
            "custom_objects, or register its class with register_keras_serializable"
        ) from None


def deserialize(config: dict[str, Any], custom_objects: Any = None) -> Any:
    """The layer or model that `serialize`, or Keras, described. Nothing but our registry is looked at."""
    if not isinstance(config, dict) or "class_name" not in config:
        raise ValueError(f"a layer's configuration is a dict with 'class_name' and 'config', not {config!r}")
    name, inner = config["class_name"], dict(config.get("config") or {})
    if name == "Lambda":
        raise ValueError(
            f"layer {inner.get('name')!r} is a Lambda, whose code a file must not bring along; rebuild the "
            "model in Python and load its weights"
        )
    kind = _find(name, config, custom_objects)
    if name in _MODELS:
        layer = kind.from_config(inner, custom_objects=custom_objects)
    else:
        layer = kind.from_config(inner)
    build = config.get("build_config")
    if build and not layer.built and name not in _MODELS:
        try:
            layer.build_from_config(build)
        except (ValueError, TypeError, AttributeError, IndexError):
            layer.built = False  # it is built again when the model is wired
    return layer


def get(identifier: Any) -> Any:
    """A layer from a layer, a configuration, or the name of a class without arguments."""
    if identifier is None or isinstance(identifier, Layer):
        return identifier
    if isinstance(identifier, str):
        return deserialize({"class_name": identifier, "config": {}})
    return deserialize(identifier)
