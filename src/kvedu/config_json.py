"""A model configuration as JSON and back: what the fast store, traces and stored rows keep."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from kvedu.config import ModelConfig
from kvedu.config_experts import ExpertsConfig
from kvedu.config_latent import LatentConfig
from kvedu.errors import ConfigError
from kvedu.rope_config import RopeConfig


def config_to_json(config: ModelConfig) -> str:
    """Every field by name, those of RoPE, latents and experts inside ``rope``, ``latent`` and ``experts``."""
    return json.dumps(asdict(config), indent=1)


def config_from_json(text: str) -> ModelConfig:
    """The inverse of ``config_to_json``. Raises ``ConfigError`` when the text is no such configuration."""
    try:
        raw: dict[str, Any] = _tuples(json.loads(text))
        parts = {"rope": RopeConfig(**_tuples(raw["rope"]))}
        for name, kind in (("latent", LatentConfig), ("experts", ExpertsConfig)):
            parts[name] = raw.get(name) and kind(**raw[name])
        return ModelConfig(**raw | parts)
    except ConfigError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        names = ", ".join(field.name for field in fields(ModelConfig))
        raise ConfigError(f"not a kvedu configuration ({error!r}); it has the fields {names}") from error


def _tuples(raw: dict[str, Any]) -> dict[str, Any]:
    """JSON's lists as the tuples that a frozen dataclass holds."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
