"""Published configurations of real models, to size by name and to check the formulas with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kvedu.analysis.shape import AttentionShape, shape_of
from kvedu.config import ModelConfig
from kvedu.config_hf import config_from_hf
from kvedu.errors import KveduError


@dataclass(frozen=True)
class KnownModel:
    """One published model: where its numbers are from, and what they say.

    ``config`` is None for a family that kvedu cannot run; its cache can still be sized by
    ``shape``. ``source`` names the Hugging Face repository or the paper, ``date`` the day of
    transcription.
    """

    name: str
    source: str
    date: str
    shape: AttentionShape
    config: ModelConfig | None = None


@cache
def _all() -> dict[str, KnownModel]:
    raw = json.loads(files("kvedu.analysis").joinpath("known_models.json").read_text(encoding="utf-8"))
    models = {}
    for row in raw["models"]:
        config = config_from_hf(row["config"]) if "config" in row else None
        models[row["name"]] = KnownModel(
            name=row["name"],
            source=f"huggingface.co/{row['repo']}" if row["repo"] else row["paper"],
            date=raw["transcribed"],
            shape=shape_of(config) if config else AttentionShape(**row["shape"]),
            config=config,
        )
    return models


def known_models() -> tuple[KnownModel, ...]:
    """All of them, in a fixed order: Llama-like ones first.

    >>> len(known_models()) >= 20
    True
    """
    return tuple(_all().values())


def known_model(name: str) -> KnownModel:
    """The model of this name. Raises ``KveduError`` with the names there are.

    >>> known_model("Falcon-7B").shape.kind, known_model("Falcon-40B").shape.kind
    ('MQA', 'GQA')
    """
    models = _all()
    if name not in models:
        raise KveduError(f"no known model {name!r}; there are {', '.join(models)}. For another, build an AttentionShape")
    return models[name]
