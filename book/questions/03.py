"""Questions of chapter 3."""

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token, max_batch
from kvedu.book.questions import Choice, Number, Option, Order
from kvedu.units import GiB

LLAMA = known_model("Llama-3-8B").config
assert LLAMA is not None
ROOM, TOKENS, QUERY = 16 * GiB, 8192, 13
NAMES = sorted(("Falcon-7B", "Llama-3-8B", "Llama-2-7B", "Llama-3-70B"), key=lambda n: kv_bytes_per_token(known_model(n).shape))


def described(name: str) -> str:
    """``Llama-3-8B: 32 layers, 8 KV heads of size 128``."""
    shape = known_model(name).shape
    heads = f"{shape.n_kv_heads} KV head{'s' if shape.n_kv_heads > 1 else ''}"
    return f"{name}: {shape.n_layers} layers, {heads} of size {shape.head_dim}"


QUESTIONS = [
    Number(
        f"A model has H = {LLAMA.H} query heads and K = {LLAMA.K} KV heads. Which KV head (from 0) does query head {QUERY} read?",
        QUERY // LLAMA.G, "(its index)", f"G = {LLAMA.G}, and {QUERY} // {LLAMA.G}: neighbors share.", by_hand=3,
        slips={QUERY % LLAMA.K: "That is `h % K`: heads dealt out like cards. Neighbors share: `h // G`.", QUERY // LLAMA.K: "That is `h // K`. The group's size is G = H / K."},
    ),
    Choice(
        "You double the number of query heads of a GQA model and leave K and D alone. What happens to the cache?",
        [
            Option("Nothing.", "Only keys and values are kept. The projections for queries and output grow, and so does the arithmetic.", True),
            Option("It doubles.", "It would if the KV heads doubled. Queries are not kept."),
            Option("It halves.", "Twice as many queries now share a KV head, but the KV heads are as many as before."),
        ],
    ),
    Choice(
        "A colleague's GQA works on a model with 16 query heads and 4 KV heads. With 32 and 4 it raises an `IndexError`. What do you suspect?",
        [
            Option("It takes `h // K` for `h // G`.", "With 16 and 4, K = G, and both are the same. With 32 and 4 the index reaches 7.", True),
            Option("It takes `h % K` for `h // G`.", "That stays below K, so it raises nothing. It is wrong in silence."),
            Option("32 does not divide evenly by 4.", "It does: G = 8."),
        ],
    ),
    Order("Order by bytes that a token adds to the cache, smallest first.", [described(name) for name in NAMES], "Layers, KV heads and head size multiply; a large model with few KV heads takes less than a small one with many."),
    Choice(
        "Decode at batch 1 after a few tokens of context: does MQA make it faster?",
        [
            Option("Hardly.", "With little text behind it a step waits for the weights, and MQA shrinks the cache. It pays when batch × context is large.", True),
            Option("Yes, by the number of KV heads saved.", "Only the reading of the cache shrinks by that factor, and here it is a small part of the step."),
            Option("No, it makes it slower.", "Nothing gets more: the projections even get a little smaller."),
        ],
        chapter=1,
    ),
    Number(
        f"A GPU has 16 GiB left for caches of Llama-3-8B in bf16. How many sequences of {TOKENS:,} tokens fit?",
        max_batch(ROOM, LLAMA, TOKENS), "sequences", f"1 GiB each. With {LLAMA.H} KV heads it would be {max_batch(ROOM, LLAMA.with_kv_heads(LLAMA.H), TOKENS)}.", by_hand=2**34 // (2 * 8 * 128 * 32 * 2 * 8192),
        slips={max_batch(ROOM, LLAMA.with_kv_heads(LLAMA.H), TOKENS): "That is with a KV head for every query head."}, chapter=2,
    ),
]  # fmt: skip
