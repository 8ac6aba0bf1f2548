"""Lab 2, challenge: the cache of every published model that the book knows."""

from __future__ import annotations

from kvedu.analysis.known_models import known_models
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.analysis.shape import AttentionShape
from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def cases(fresh: Fresh) -> list[Case]:
    """Every model with one token, with a length around its window, and with a long text."""
    made = []
    for known in known_models():
        window = known.shape.window or 1_000
        for tokens in (1, fresh.choice((window - 1, window, window + 1)), fresh.integer(20_000, 100_000)):
            made.append(Case(f"{known.name} ({known.shape.kind}) at {tokens:,} tokens", (known.shape, tokens)))
    return made


def sized(*, latent: bool = True, window: bool = True, some: bool = True, heads: bool = False, rope: bool = True, twice: bool = False):
    """An answer that looks at some parts of a shape only."""

    def answer(shape: AttentionShape, tokens: int) -> int:
        elements = 2 * (shape.n_heads if heads else shape.n_kv_heads) * shape.head_dim
        if shape.latent is not None and latent:
            elements = (2 if twice else 1) * (shape.latent + (shape.rope_width if rope else 0))
        windowed = shape.n_layers if shape.windowed_layers is None or not some else shape.windowed_layers
        windowed = windowed if shape.window is not None and window else 0
        return 2 * elements * ((shape.n_layers - windowed) * tokens + windowed * min(tokens, shape.window or 0))

    return answer


EXERCISE = Exercise(
    title="The whole zoo",
    read="book/02-memory-math",
    hint="Elements per token and layer first, with the latent as a case of its own. Then add up the layers.",
    checked="every published model that the book knows, at one token, around its window, and at tens of thousands",
    cases=cases,
    right=lambda shape, tokens: kv_cache_bytes(shape, tokens),
    mistakes=(
        Mistake(sized(window=False), "windows are forgotten: a windowed layer holds at most `window` tokens"),
        Mistake(sized(some=False), "all layers of a model with a window are windowed; windowed_layers says how many are"),
        Mistake(sized(latent=False), "latents are forgotten: such a layer keeps one vector per token, not keys and values of every head"),
        Mistake(sized(twice=True), "latents are counted twice: one vector serves as key and as value"),
        Mistake(sized(rope=False), "the latent's part for RoPE is forgotten: latent + rope_width elements are kept"),
        Mistake(sized(heads=True), "query heads are counted where KV heads are kept"),
        Mistake(sized(window=False, latent=False), "it is right for plain attention alone: mind the windows and the latents"),
    ),
    optional=True,
)
