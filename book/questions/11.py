"""Questions of chapter 11."""

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.book.questions import Choice, Number, Option, Order

LLAMA = known_model("Llama-3-70B").config
assert LLAMA is not None
PAGE, CONTEXT, PAGES = 16, 4096, 1000
GB = kv_cache_bytes(LLAMA, CONTEXT) / 1e9
LENGTHS = (100, 33, 250)
IN_USE = sum(-(-length // PAGE) for length in LENGTHS)

QUESTIONS = [
    Number(
        f"Llama-3-70B has 80 layers, 64 query heads, 8 KV heads of size 128. How many GB (10⁹ bytes) does one sequence of {CONTEXT:,} tokens take in bf16?",
        round(GB, 3), "GB", "2 · 80 · 8 · 128 elements of 2 bytes a token. In GiB it is 1.25.", by_hand=2 * 80 * 8 * 128 * 2 * 4096 / 1e9, tolerance=0.01,
        slips={round(GB * 8, 3): "That is with 64 KV heads. The query heads do not count.", round(GB / 2, 3): "Keys and values: twice.", 1.25: "That is in GiB."},
    ),
    Number(
        f"Three sequences hold {LENGTHS[0]}, {LENGTHS[1]} and {LENGTHS[2]} tokens in pages of {PAGE} and share nothing. How many pages should a snapshot show as in use?",
        IN_USE, "pages", "7, 3 and 16: each sequence rounds up by itself.", by_hand=7 + 3 + 16,
        slips={-(-sum(LENGTHS) // PAGE): "Sequences do not share a page; each has its own last one.", sum(length // PAGE for length in LENGTHS): "The last page is only partly filled, and is in use all the same."},
    ),
    Choice(
        "After a night, an idle engine shows 40 of 1,000 pages in use and none of them in a table. Every answer of the night was right. What is it?",
        [
            Option("A leak: somebody still refers to them, and nobody will give them back.", "Tables and pool must agree. Outputs stay right until the pool is empty.", True),
            Option("Prefix caching: they are kept for reuse.", "Those are evictable, and counted apart: nobody refers to them."),
            Option("Internal fragmentation.", "That is empty places *inside* pages that a table names."),
        ],
    ),
    Choice(
        "A chart shows memory rise steeply within one step and then slowly for eighty steps. What happened?",
        [
            Option("A prompt was computed, and then tokens were decoded.", "Prefill brings all its rows at once, decode one for each sequence and step.", True),
            Option("A sequence was decoded, and then its prompt was cached.", "The prompt comes first; without its keys nothing can be decoded."),
            Option("Pages were swapped out.", "Then memory would fall."),
        ],
    ),
    Order(
        "What an engine does for a request. Put it in order.",
        ["It waits until pages are free.", "Its prompt's keys and values are written into pages.", "Each step adds one row, and a page now and then.", "Its pages are given back."],
        "A page is taken when a token needs it, and given back in the step in which the request ends.",
    ),
    Number(
        f"A pool has {PAGES:,} pages of {PAGE} tokens. Requests come with 500 prompt tokens and make 140. How many of them can run to their ends at once?",
        PAGES // (-(-639 // PAGE)), "requests", "The last token is never cached: 639 tokens, 40 pages each.", by_hand=1000 // 40,
        slips={PAGES * PAGE // 500: "The answers take room too.", PAGES: "A request takes more than a page."},
        chapter=4,
    ),
    Choice(
        "Why does a decode step with three sequences take hardly longer than with one?",
        [
            Option("It reads the weights once for all three.", "That reading is most of what a small step waits for.", True),
            Option("Their caches are shared.", "Only common prefixes are; here nothing is."),
            Option("The three run on different cores.", "It is one matrix product with three rows."),
        ],
        chapter=1,
    ),
]  # fmt: skip
