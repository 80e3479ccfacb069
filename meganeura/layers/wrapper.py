"""Wrapper: a layer around another one."""

from __future__ import annotations

from typing import Any

from meganeura.layers.layer import Layer


class Wrapper(Layer):
    """The base of layers that hold another one in `layer`, which files then store with them."""

    _passes_on = True

    def __init__(self, layer: Any, **kwargs: Any):
        if not isinstance(layer, Layer):
            raise ValueError(f"layer {type(self).__name__} wraps a layer, got {layer!r}")
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, input_shape: Any = None) -> None:
        if not self.layer.built:
            self.layer.build(input_shape)

    def get_config(self) -> dict[str, Any]:
        from meganeura.layers import serialize

        return {**super().get_config(), "layer": serialize(self.layer)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        from meganeura.layers import deserialize

        config = dict(config)
        if isinstance(config.get("layer"), dict):
            config["layer"] = deserialize(config["layer"], custom_objects)
        return super().from_config(config)
