"""Questions of chapter 15."""

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.book.questions import Choice, Number, Option, Order
from kvedu.caches.ring import places
from kvedu.units import MiB

LLAMA = known_model("Llama-3-8B").config
assert LLAMA is not None
SINKS, WINDOW, TOKEN = 4, 1020, 5000
(SLOT,) = places([TOKEN], SINKS, WINDOW)
HELD = kv_cache_bytes(LLAMA, 1_000_000, held=SINKS + WINDOW) / MiB

QUESTIONS = [
    Choice(
        "A window of 1,024 tokens reads a long chat. At token 1,025 the text begins to decay, though nothing important was said at the start. What do you try first?",
        [
            Option("Keep the first few tokens beside the window.", "Many heads put the weight that they do not need on token 0. Without it their softmax spreads over tokens that do bring something.", True),
            Option("Make the window twice as long.", "Then it decays at token 2,049: what is missing is one token, not length."),
            Option("Scale RoPE for longer contexts.", "Distances in the window are no longer than before; no position is the trouble."),
        ],
    ),
    Number(
        f"A ring has {SINKS} sinks and a window of {WINDOW:,}. Into which slot goes token {TOKEN:,} (the first one is token 0)?",
        SLOT, "slot", "It is written behind the sinks, over the token that is a window older.", by_hand=4 + (5000 - 4) % 1020,
        slips={TOKEN % (SINKS + WINDOW): "The sinks do not go round: only the window is a ring.", (TOKEN - SINKS) % WINDOW: "The ring begins behind the sinks."},
    ),
    Number(
        f"Llama-3-8B in bf16 streams a million tokens with {SINKS} sinks and a window of {WINDOW:,}. How large is the cache of one sequence at the end?",
        round(HELD, 3), "MiB", "It holds 1,024 tokens of 128 KiB, at the end as at the start.", by_hand=1024 * 128 / 1024, tolerance=0.001,
        slips={
            round(kv_cache_bytes(LLAMA, WINDOW) / MiB, 3): "The sinks take room too.",
            round(kv_cache_bytes(LLAMA, 1_000_000) / MiB, 3): "That would be all of the text. The window lets tokens go.",
        },
        chapter=2,
    ),
    Choice(
        "A cache stores rotated keys. It drops tokens 4 to 99, and the next token is told position 64 instead of 160. What has to happen to the keys that are left behind the gap?",
        [
            Option("Each is turned by -96 positions.", "Rotations add up: a key rotated at p and turned by -96 is the key that would have been made at p - 96.", True),
            Option("Nothing: scores depend on distance only.", "That is why. The query has moved and the keys have not, so every distance is wrong by 96."),
            Option("They have to be computed again from their tokens.", "No need: turning them costs a few FLOPs each, and neither token nor weights."),
            Option("Each is turned by its new position.", "It is turned by its old one already; only the difference is missing."),
        ],
    ),
    Order(
        "How a model repeats a random token sequence. In which order does this happen?",
        [
            "While the text is read first, a head notes for each token which one stood before it.",
            "A later layer makes each token's key from that note, and it is cached.",
            "The second time, a query asks for “what came after the token that I am”.",
            "The value found there is brought, and the next token is named.",
        ],
        "The first two happen when the past is written. Spoil them later, and little is lost: they are in the cache.",
    ),
    Choice(
        "Two caches have the same perplexity on prose. One of them spoils the keys of a single induction head. Which test tells them apart?",
        [
            Option("Recall of facts, or copying, from the context.", "That ability sits in few heads. Prose can nearly always be guessed without it.", True),
            Option("Perplexity on more prose.", "An average over easy tokens hides what only a few tokens need."),
            Option("The size of the cache in bytes.", "It is the same for both."),
        ],
    ),
    Choice(
        "A long document is cached. Then the question comes. Can the model read the document in the light of the question?",
        [
            Option("No: the document's keys and values stay as they were; the question's tokens look back at them.", "Causal attention never changes what is earlier. That is what makes a cache possible.", True),
            Option("Yes: attention updates the cached values.", "It reads them. Only appending writes."),
            Option("Yes, if there is memory for a second copy.", "Only running the document again, behind the question, would do it."),
        ],
        chapter=1,
    ),
]  # fmt: skip
