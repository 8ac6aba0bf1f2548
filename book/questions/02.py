"""Questions of chapter 2."""

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token, kv_cache_bytes, max_batch, weight_bytes
from kvedu.book.questions import Choice, Number, Option
from kvedu.units import GB, GiB

SMALL, SEVEN = known_model("SmolLM2-135M").config, known_model("Qwen2.5-7B").config
assert SMALL is not None and SEVEN is not None
TOKEN = kv_bytes_per_token(SEVEN)
ROOM, CHAT = 24 * GB - weight_bytes(SEVEN), 32_768
TIE = weight_bytes(SMALL) / kv_bytes_per_token(SMALL)

QUESTIONS = [
    Choice(
        "Which of these does not change the size of a KV cache?",
        [
            Option("The number of query heads.", "A query is used once, in its own token's step. That is why H is not in the formula.", True),
            Option("The number of KV heads.", "It is the K of the formula: half of them, half the bytes."),
            Option("The number of layers.", "Every layer keeps keys and values of its own."),
            Option("The head size, when width / heads stays as it is.", "The head size D is the config's own, and it is in the formula. Width / heads is only sometimes the same number."),
        ],
    ),
    Number(
        f"Qwen2.5-7B has {SEVEN.L} layers, {SEVEN.H} query heads, {SEVEN.K} KV heads and head size {SEVEN.D}. How many bytes does a token add in bf16?",
        TOKEN, "bytes", f"2 · {SEVEN.K} · {SEVEN.D} · {SEVEN.L} · 2: keys and values, KV heads, head size, layers, bytes.", by_hand=2 * 4 * 128 * 28 * 2,
        slips={TOKEN * SEVEN.G: "You have counted the query heads.", TOKEN / 2: "Keys and values, or two bytes: one factor of 2 is missing.", TOKEN / SEVEN.L: "That is one layer."},
    ),
    Number(
        f"How many users with {CHAT:,} tokens fit on a 24 GB GPU beside the weights of Qwen2.5-7B in bf16, with nothing kept in reserve?",
        max_batch(ROOM, SEVEN, CHAT), "users", "What the weights leave, over what a user takes, rounded down. In practice fewer, since activations need room too.",
        by_hand=(24e9 - 7.6156e9 * 2) // (2 * 4 * 128 * 28 * 2 * 32_768),
        slips={
            max_batch(24 * GB, SEVEN, CHAT): "The weights lie in the same memory.",
            max_batch(24 * GiB - weight_bytes(SEVEN), SEVEN, CHAT): "24 GB are 24 · 10⁹ bytes, not 24 GiB.",
        },
    ),
    Choice(
        "A tool says that a cache needs 40 GB. Your GPU has 40 GB. What do you ask first?",
        [
            Option("Which GB, and where the weights are.", "If the tool means GiB, the cache alone is larger than the GPU. And the weights want to live there too.", True),
            Option("How fast the GPU is.", "Speed does not make room."),
            Option("Nothing: 40 fits into 40.", "Only if both mean the same GB, and if the weights and activations need no room."),
        ],
    ),
    Choice(
        "You test a memory calculator. Which models must be in the test?",
        [
            Option("One with K ≠ G, one whose head size is not width / heads, one with a window, one with latents; and a cache that exists.", "Each of them shows a slip that the others hide. The cache that exists shows the slips nobody thought of.", True),
            Option("The three that are downloaded most.", "They may all hide the same slip: with K = G, for example, KV heads and queries per head can be mixed up unseen."),
            Option("A small one and a very large one.", "Size hides nothing and shows nothing; a wrong factor is wrong at every size."),
        ],
    ),
    Number(
        f"One sequence of chapter 1's model: at which context are the cache's bytes as many as the weights', in bf16? It has {weight_bytes(SMALL) // 2 / 1e6:.1f} million parameters and adds {kv_bytes_per_token(SMALL):,} bytes a token.",
        round(TIE), "tokens", f"Weights over bytes per token. The model's positions end at {SMALL.max_positions:,}, so no single conversation gets there; sixteen users of 1,024 tokens do.",
        by_hand=134.5e6 * 2 / 23_040, tolerance=0.02, slips={round(TIE / 2): "The weights take two bytes each, too."}, chapter=1,
    ),
    Choice(
        "With a cache, how does the work of the key and value projections grow with the length n of a generation?",
        [
            Option("As n.", "Each token is projected once. Without a cache it was n².", True),
            Option("As n².", "That is without a cache, where every step projects the whole text again. (Attention's scores are n² with a cache too.)"),
            Option("Not at all.", "Every new token must still be projected once."),
        ],
        chapter=1,
    ),
]  # fmt: skip
assert kv_cache_bytes(SEVEN, CHAT) == CHAT * TOKEN  # no window
