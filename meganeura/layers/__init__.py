"""Layers, by Keras's names (https://keras.io/api/layers)."""

from __future__ import annotations

import importlib
from typing import Any

from meganeura import identifiers
from meganeura.layers.calling import InputSpec as InputSpec
from meganeura.layers.input_layer import Input as Input
from meganeura.layers.input_layer import InputLayer as InputLayer
from meganeura.layers.layer import Layer as Layer
from meganeura.layers.serialization import deserialize as deserialize
from meganeura.layers.serialization import serialize as serialize

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
    "dot_product": (
        "GatedFeedForward LastToken NamedActivation ReversibleEmbedding ScaledDotProduct SplitHeads"
    ),
    "decoding": "Decoding",
    "positions": "PositionEmbedding RotaryEmbedding SinePositionEncoding",
    "patches": "PatchEmbedding PixelShuffle",
    "einsum_dense": "EinsumDense",
    "wrapper": "Wrapper",
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


def get(identifier: Any) -> Any:
    """A layer from a layer, a configuration, or the name of a class without arguments."""
    if identifier is None or isinstance(identifier, Layer):
        return identifier
    if isinstance(identifier, str):
        return deserialize({"class_name": identifier, "config": {}})
    return deserialize(identifier)
