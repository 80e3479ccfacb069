"""The list of callbacks that training calls, with the history and the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from meganeura.callbacks.base import Callback, looks_at_batches


class LazyLogs(MutableMapping[str, Any]):
    """Logs of a batch that are read from the device when somebody looks at them, and only then."""

    def __init__(self, read: Callable[[], dict[str, Any]]):
        self._read = read
        self._values: dict[str, Any] | None = None

    def _get(self) -> dict[str, Any]:
        if self._values is None:
            self._values = dict(sorted(self._read().items()))
        return self._values

    def __getitem__(self, key: str) -> Any:
        return self._get()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._get()[key] = value

    def __delitem__(self, key: str) -> None:
        del self._get()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._get())

    def __len__(self) -> int:
        return len(self._get())

    def __repr__(self) -> str:
        return repr(self._get())


class CallbackList(Callback):
    """Calls every callback in order: the user's, then History, then the progress bar."""

    def __init__(
        self,
        callbacks: Any = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: Any = None,
        **params: Any,
    ):
        super().__init__()
        from meganeura.callbacks.history import History
        from meganeura.callbacks.progress import ProgbarLogger

        if isinstance(callbacks, CallbackList):
            self.callbacks: list[Any] = list(callbacks.callbacks)
        else:
            given = (
                callbacks
                if isinstance(callbacks, (list, tuple))
                else []
                if callbacks is None
                else [callbacks]
            )
            self.callbacks = list(given)
        for callback in self.callbacks:
            if not hasattr(callback, "on_epoch_end") and not hasattr(callback, "on_train_begin"):
                raise TypeError(f"callbacks must be Callback objects, and {callback!r} is none")
        params["verbose"] = verbose = _verbosity(params.get("verbose", 0))
        if add_history:
            history = next((c for c in self.callbacks if isinstance(c, History)), None)
            if history is None:
                history = History()
                self.callbacks.append(history)
            if model is not None:
                model.history = history
        if (
            verbose
            and add_progbar
            and not any(isinstance(c, ProgbarLogger) for c in self.callbacks)
        ):
            self.callbacks.append(ProgbarLogger())
        self.set_params(params)
        if model is not None:
            self.set_model(model)

    def looks_at_batches(self, kind: str) -> bool:
        """Whether a callback is to hear of every batch of "train", "test" or "predict"."""
        return any(looks_at_batches(c, kind) for c in self.callbacks)

    def append(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.callbacks)

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params
        for callback in self.callbacks:
            callback.set_params(params)

    def set_model(self, model: Any) -> None:
        self._model = model
        for callback in self.callbacks:
            callback.set_model(model)


def _verbosity(verbose: Any) -> int:
    if verbose == "auto":
        return 1
    if verbose not in (0, 1, 2):
        raise ValueError(f"verbose must be 0, 1, 2 or 'auto', not {verbose!r}")
    return int(verbose)


def _forward(hook: str) -> Callable[..., None]:
    def call(self: CallbackList, logs: Any = None) -> None:
        logs = {} if logs is None else logs
        for callback in self.callbacks:
            if (method := getattr(callback, hook, None)) is not None:
                method(logs)

    return call


def _forward_counted(hook: str) -> Callable[..., None]:
    def call(self: CallbackList, index: int, logs: Any = None) -> None:
        logs = {} if logs is None else logs
        for callback in self.callbacks:
            if (method := getattr(callback, hook, None)) is not None:
                method(index, logs)

    return call


for _end in ("begin", "end"):
    for _kind in ("train", "test", "predict"):
        setattr(CallbackList, f"on_{_kind}_{_end}", _forward(f"on_{_kind}_{_end}"))
        _hook = f"on_{_kind}_batch_{_end}"
        setattr(CallbackList, _hook, _forward_counted(_hook))
    setattr(CallbackList, f"on_epoch_{_end}", _forward_counted(f"on_epoch_{_end}"))
