"""Models and machines as the scripts want them: the few numbers that sizes and costs follow from."""

from __future__ import annotations

from typing import Any

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.weights import matrix_parameters, parameter_count
from kvedu.config import ModelConfig
from kvedu.errors import KveduError


def sizes(model: str | ModelConfig, name: str | None = None) -> dict[str, Any]:
    """Of a known model by name, or of a config under ``name``. Raises ``KveduError`` where weights cannot be counted."""
    if isinstance(model, str):
        name, config = model, known_model(model).config
        if config is None:
            raise KveduError(f"{model} is of a family whose weights kvedu does not count")
    else:
        config = model
    windows = [config.window(layer) for layer in range(config.L)]
    return {
        "name": name or "model",
        **{letter: getattr(config, letter) for letter in "HKDML"},
        "groups": [{"layers": windows.count(window), "window": window} for window in dict.fromkeys(windows)],
        "matrices": matrix_parameters(config),
        "parameters": parameter_count(config),
        "positions": config.max_positions,
    }


def limits(name: str) -> dict[str, Any]:
    """A machine's peaks, bandwidth and memory, in FLOP/s, bytes/s and bytes (decimal, as vendors quote them)."""
    machine = hardware(name)
    return {"name": name, "flops": dict(machine.flops), "bandwidth": machine.bandwidth, "memory": machine.memory}
