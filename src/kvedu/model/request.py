"""What a caller may ask for, checked whole before any work is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

from kvedu.config import ModelConfig
from kvedu.errors import RequestError
from kvedu.model.sampling import Sampling
from kvedu.model.tokenizer import Tokenizer

Prompt = str | Sequence[int] | Sequence[dict[str, str]]
"""Text as it is, token ids, or chat messages (rendered by the model's template)."""


@dataclass(frozen=True)
class Request:
    """One prompt and everything that decides its completion."""

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling
    n: int = 1
    stop: tuple[str, ...] = ()
    eos_ids: tuple[int, ...] = ()
    prompt_logprobs: int | None = None

    @property
    def cached_tokens(self) -> int:
        """Places that the request needs in a cache: P + N - 1, since the last token sampled is never fed back."""
        return len(self.prompt_ids) + max(self.max_new_tokens - 1, 0)


def is_batch(prompts: Any) -> bool:
    """Whether this is a list of prompts rather than one prompt."""
    if isinstance(prompts, str) or (isinstance(prompts, Sequence) and len(prompts) == 0):
        return False
    return isinstance(prompts, Sequence) and not isinstance(prompts[0], (int, dict))


def prompt_ids(prompt: Prompt, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """Token ids of a prompt of any of the three kinds. Raises ``RequestError`` if it is none of them."""
    if isinstance(prompt, str) or (isinstance(prompt, Sequence) and prompt and isinstance(prompt[0], dict)):
        if tokenizer is None:
            raise RequestError("this model has no tokenizer: give token ids, or set model.tokenizer")
        return tuple(tokenizer.encode(prompt) if isinstance(prompt, str) else tokenizer.chat(prompt))
    try:
        return tuple(int(i) for i in prompt)
    except (TypeError, ValueError):
        raise RequestError(f"a prompt is text, token ids or chat messages; got {type(prompt).__name__}") from None


def make_request(
    prompt: Prompt, config: ModelConfig, tokenizer: Tokenizer | None, max_new_tokens: int, **settings: Any
) -> Request:
    """Check a request against the model and lay it out.

    The whole text, prompt and completion, is at most ``config.max_positions`` tokens:
    ``max_new_tokens`` is cut to that, and the completion then ends by length.
    Raises ``RequestError`` for an empty or over-long prompt, ids outside the vocabulary, or
    settings out of range.
    """
    ids = prompt_ids(prompt, tokenizer)
    if not ids:
        raise RequestError("the prompt is empty: a model needs at least one token to predict the next")
    outside = next((i for i in ids if not 0 <= i < config.V), None)
    if outside is not None:
        raise RequestError(f"token id {outside} is outside the vocabulary of {config.V}; was another tokenizer used?")
    if max_new_tokens < 0:
        raise RequestError(f"max_new_tokens must be 0 or more, not {max_new_tokens}")
    room = config.max_positions - len(ids)
    if room < 0 or (room == 0 and max_new_tokens):
        raise RequestError(
            f"the prompt has {len(ids)} tokens; this model has {config.max_positions} positions for prompt and "
            "completion together. Shorten the prompt"
        )
    if settings.get("n", 1) < 1:
        raise RequestError(f"n counts completions of one prompt and must be 1 or more, not {settings['n']}")
    if settings.get("stop") and tokenizer is None:
        raise RequestError("stop strings need a tokenizer; this model has none")
    return Request(ids, min(max_new_tokens, room), **settings)
