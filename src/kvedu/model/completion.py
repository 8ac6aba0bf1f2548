"""One completion in the making: the tokens sampled so far, the text that may be shown, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvedu.model.detokenize import Detokenizer
from kvedu.model.request import Request
from kvedu.model.sampling import Sampler, TokenLogprob
from kvedu.model.tokenizer import Tokenizer


@dataclass(frozen=True)
class Delta:
    """What one step added to one completion; ``finish_reason`` is None until its last."""

    prompt: int
    copy: int
    text: str
    token_ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    logprob: TokenLogprob | None = None


@dataclass(frozen=True)
class Completion:
    """One finished completion. ``finish_reason``: "stop" (an EOS id or a stop string) or "length".

    ``token_ids`` are all sampled ids, the ending EOS included; ``text`` ends before it.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    seq: int | None = None
    """Its sequence in the caller's cache, where ``keep`` left it open."""


@dataclass
class Run:
    """A request's completion while it is made; ``seq`` is its sequence in the cache.

    ``generate`` and the engine drive it alike: they bring sampled tokens, it says what they add
    and whether they end it.
    """

    request: Request
    prompt: int
    copy: int
    seq: int | None
    sampler: Sampler
    text: Detokenizer | None
    ids: list[int]
    deltas: list[Delta] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    finished: str | None = None

    @classmethod
    def start(cls, request: Request, prompt: int, copy: int, seq: int | None, tokenizer: Tokenizer | None) -> Run:
        """Completion number ``copy`` of a request, nothing sampled yet."""
        text = Detokenizer(tokenizer, request.stop) if tokenizer is not None else None
        return cls(request, prompt, copy, seq, Sampler(request.sampling, copy), text, list(request.prompt_ids))

    @property
    def sampled(self) -> int:
        """Tokens sampled so far."""
        return len(self.ids) - len(self.request.prompt_ids)

    def take(self, token_id: int, logprob: TokenLogprob | None) -> Delta:
        """Add a sampled token. A stop counts before the length cap does."""
        self.ids.append(token_id)
        shown = ""
        if token_id in self.request.eos_ids:
            self.finished = "stop"
        elif self.text is not None:
            shown = self.text.push(token_id)
            if self.text.stopped is not None:
                self.finished = "stop"
        if self.finished is None and self.sampled >= self.request.max_new_tokens:
            self.finished = "length"
        if self.finished and self.text is not None:
            shown += self.text.finish()
        self.deltas.append(Delta(self.prompt, self.copy, shown, (token_id,), self.finished, logprob))
        return self.deltas[-1]

    def completion(self, kept: bool) -> Completion:
        """The result, once finished."""
        asked = self.request.sampling.logprobs is not None
        return Completion(
            prompt_ids=self.request.prompt_ids,
            token_ids=tuple(self.ids[len(self.request.prompt_ids) :]),
            text="".join(delta.text for delta in self.deltas),
            finish_reason=self.finished,
            logprobs=tuple(delta.logprob for delta in self.deltas) if asked else None,
            prompt_logprobs=self.prompt_logprobs,
            seq=self.seq if kept else None,
        )
