"""Many prompts at once through an engine, from the first to the last token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence as Seq

from kvedu.engine.progress import Progress
from kvedu.errors import RequestError
from kvedu.model.completion import Completion
from kvedu.model.request import Prompt
from kvedu.model.sampling import Sampling

if TYPE_CHECKING:
    from kvedu.engine.engine import Engine


def generate_together(
    engine: Engine,
    prompts: Seq[Prompt],
    sampling: Sampling | Seq[Sampling],
    progress: bool | None,
    settings: Mapping[str, Any],
) -> list[Completion] | list[list[Completion]]:
    """``Engine.generate``: all are checked and taken in before any runs, and none is left behind."""
    samplings = [sampling] * len(prompts) if isinstance(sampling, Sampling) else list(sampling)
    if len(samplings) != len(prompts):
        raise RequestError(f"{len(samplings)} sampling settings for {len(prompts)} prompts: give one, or one each")
    numbers: list[int] = []
    try:
        for prompt, one in zip(prompts, samplings):
            numbers.append(engine.add(prompt, sampling=one, **settings))
        _serve(engine, numbers, progress)
    finally:
        for number in numbers:
            engine.abort(number)
    results = [engine.results(number) for number in numbers]
    return results if settings.get("n", 1) > 1 else [completions[0] for completions in results]


def _serve(engine: Engine, numbers: list[int], progress: bool | None) -> None:
    left = set(numbers)
    with Progress(len(left), "requests", progress) as report:
        while left:
            ended = {d.prompt for d in engine.step() if d.finish_reason and d.prompt in left and engine.done(d.prompt)}
            left -= ended
            report(len(ended))
