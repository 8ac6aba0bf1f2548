"""Questions of chapter 5."""

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.book.questions import Choice, Number, Option
from kvedu.units import GiB

PAGE, PROMPT, KNOWN = 16, 4000, 3300
REUSED = KNOWN // PAGE * PAGE
EDITED = 4  # tokens before the edit
LLAMA = kv_bytes_per_token(known_model("Llama-3-8B").shape)

QUESTIONS = [
    Choice(
        "A system prompt begins with “Today is Monday, 4 May, 10:42.” and goes on with 3,000 tokens of instructions. What does prefix caching save from one minute to the next?",
        [
            Option("Nothing.", "The first page is different, and with it the history of all others. Move the line to the end.", True),
            Option("All but the first page.", "A page is reused only with its whole history, and that has changed."),
            Option("About half of it.", "It is all or nothing from the first difference on, and that stands in the first page."),
        ],
    ),
    Number(
        f"A prompt has {PROMPT:,} tokens, and the first {KNOWN:,} of them are known. Pages have {PAGE} tokens. How many tokens are computed?",
        PROMPT - REUSED, "tokens", f"{REUSED:,} are reused, in whole pages; so the first token comes about {100 * REUSED / PROMPT:.0f}% sooner, if prefill is all there is to wait for.",
        by_hand=4000 - 206 * 16, slips={PROMPT - KNOWN: "Only whole pages are reused.", REUSED: "That many are reused.", PROMPT: "Then nothing would be reused."},
    ),
    Choice(
        "Your cache reports that 90% of prompt tokens are reused, and users still complain about slow answers. What do you look at?",
        [
            Option("Queue time and time per output token.", "Reuse saves prefill. Long answers wait for decode, which reads as many keys and values as before; and a request that stands in line waits however short its prefill is.", True),
            Option("The missing 10%.", "They are a small part of prefill, and prefill need not be what users wait for."),
            Option("The hash function.", "A match is checked token by token anyway; a slow hash is far below a step's time."),
        ],
    ),
    Choice(
        "Two running requests share the pages of a prefix, and both write on. Why is no page copied?",
        [
            Option("Only full pages are shared, and nothing is written into a full page any more.", "Each writes behind them, into pages of its own. Copy on write is for forks, which share a page that still has room.", True),
            Option("They are copied at once when the second request comes in.", "Then sharing would save no memory."),
            Option("Both write the same tokens.", "They need not; after the prefix their texts part."),
        ],
        chapter=4,
    ),
    Number(
        f"A conversation of 640 tokens is cached in pages of {PAGE}. The user edits the fifth token of the first message. How many pages can still be used?",
        EDITED // PAGE, "pages", "Four tokens before the edit are unchanged, and they do not fill a page. In pages of one token it would be four.", by_hand=0,
        slips={EDITED: "That many tokens are unchanged. They do not fill a page.", 640 // PAGE - 1: "All later tokens have seen the edited one.", 640 // PAGE: "All of them have seen the edited token."}, chapter=1,
    ),
    Number(
        "You keep the prefixes of 100 tenants, 1,000 tokens each, for Llama-3-8B in bf16. How much memory is that?",
        round(100 * 1000 * LLAMA / GiB, 3), "GiB", "100 × 1,000 tokens of 128 KiB each. It lies in memory that could hold running requests instead.",
        by_hand=100_000 * 128 / 1024**2, tolerance=0.02, slips={round(100 * 1000 * LLAMA / 1e9, 3): "Those are GB, not GiB.", round(4 * 100 * 1000 * LLAMA / GiB, 3): "The model has 8 KV heads, not 32."}, chapter=2,
    ),
]  # fmt: skip
