"""Exercises of chapter 10: one server, from its bytes to its seconds, and what the chapters before it taught."""

from kvedu.analysis.batching import static_steps
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token, kv_cache_bytes, max_batch
from kvedu.analysis.shape import AttentionShape
from kvedu.analysis.speculation import expected_tokens, speedup
from kvedu.analysis.weights import weight_bytes
from kvedu.book.questions import Choice, Number, Option, Order
from kvedu.units import GiB

LLAMA = known_model("Llama-3-8B").config
assert LLAMA is not None
L4 = hardware("L4")
WEIGHTS, TOKEN = weight_bytes(LLAMA), kv_bytes_per_token(LLAMA)
LEFT = int(0.9 * L4.memory - WEIGHTS)
PLACES = LEFT // (16 * TOKEN) * 16
LONGEST, MEAN = 8_192, 600
NEEDS = (4, 2, 10, 3)
WASTED = len(NEEDS) * static_steps(NEEDS, len(NEEDS)) - sum(NEEDS)

QUESTIONS = [
    Number(
        "A loop without a cache generates 1,000 tokens from a prompt of one. How many times as many rows go through a layer's key and value projections as with a cache?",
        sum(range(1, 1_001)) / 1_000, "times", "n(n + 1)/2 rows against n: (n + 1)/2 times.", by_hand=1_001 / 2, tolerance=0.002,
        slips={1_000.0: "The first steps are short: on average half of the tokens are there.", 500_500.0: "So many rows it is without a cache. How many with one?"},
        chapter=1,
    ),
    Choice(
        "Prefill takes less time per token than decode, on the same model and machine. Why?",
        [
            Option("Its tokens share each weight that is read.", "One reading of the weights serves the whole prompt. In decode at batch 1 it serves a single token, and arithmetic waits for memory.", True),
            Option("Decode has to read a large cache.", "At batch 1 and a short context the cache is a small part of what is read; the weights are the rest. It becomes true when batch times context is large."),
            Option("Prefill skips the attention over earlier tokens.", "It does not: every token of a prompt attends to all before it."),
            Option("Sampling is slow.", "It is one row of logits per token, and the same for both."),
        ],
        chapter=1,
    ),
    Number(
        "Llama-3-8B has 32 layers, 32 query heads, 8 KV heads and head size 128. How large is its cache in bf16 for 4 sequences of 32,768 tokens?",
        kv_cache_bytes(LLAMA, 32_768, 4) / GiB, "GiB", "128 KiB a token, 131,072 tokens.", by_hand=2 * 32 * 8 * 128 * 2 * 4 * 32_768 / 2**30, tolerance=0.002,
        slips={
            kv_cache_bytes(LLAMA, 32_768, 1) / GiB: "That is one of the four sequences.",
            kv_cache_bytes(LLAMA, 32_768, 4) / GiB / 2: "Keys and values: two of everything.",
            kv_cache_bytes(LLAMA, 32_768, 4) / 1e9: "That is in GB of 10⁹ bytes; GiB are wanted.",
            4 * kv_cache_bytes(LLAMA, 32_768, 4) / GiB: "32 is the number of query heads. The cache holds the 8 KV heads.",
        },
        chapter=2,
    ),
    Number(
        f"That model serves from an L4 with {L4.memory / 1e9:.0f} GB (10⁹ bytes). A tenth stays free, the weights take {WEIGHTS / 1e9:.2f} GB in bf16. How many conversations fit if each reserves {LONGEST:,} tokens?",
        max_batch(LEFT, LLAMA, LONGEST), "conversations", "5.54 GB are left, one conversation takes 1.07 GB, and what does not fit whole does not fit.",
        by_hand=int((0.9 * 24e9 - WEIGHTS) // (131_072 * 8_192)),
        slips={
            int((L4.memory - WEIGHTS) // (TOKEN * LONGEST)): "A tenth of the memory stays free.",
            int((0.9 * L4.memory * 1.073741824 - WEIGHTS) // (TOKEN * LONGEST)): "The memory is in GB of 10⁹ bytes, not in GiB.",
        },
        chapter=2,
    ),
    Number(
        "Take a model of that shape, but with one KV head in each layer (MQA): how many times smaller is the cache than with 32 (MHA)?",
        kv_bytes_per_token(AttentionShape(32, 32, 32, 128)) / kv_bytes_per_token(AttentionShape(32, 32, 1, 128)), "times", "H/K: 32 heads over 1.", by_hand=32 / 1,
        slips={8.0: "That is against the 8 KV heads that the model has.", 4.0: "That is what its 8 KV heads save against 32."},
        chapter=3,
    ),
    Number(
        f"That L4's memory in pages of 16 tokens, and conversations that hold {MEAN} tokens on average. A last page is half empty in the mean: (16 - 1)/2 places. How many fit now?",
        int(PLACES // (MEAN + 15 / 2)), "conversations", "2,641 whole pages have 42,256 places; a conversation takes 607.5.", by_hand=int(2_641 * 16 // 607.5),
        slips={LEFT // TOKEN // MEAN: "The last page of each is not full: add 7.5 places.", 5: "Nobody reserves 8,192 tokens any more."},
        chapter=4,
    ),
    Number(
        "Of a prompt of 600 tokens the first 500 are a system prompt whose pages, of 16 tokens, are still in memory. How many tokens are computed?",
        600 - 500 // 16 * 16, "tokens", "Whole pages only: 31 of them, 496 tokens, are reused.", by_hand=600 - 496,
        slips={100.0: "The 500 tokens end inside a page, and only whole pages are shared.", 496.0: "So many are reused.", 88.0: "A page that is not full with shared tokens cannot be shared: round down."},
        chapter=5,
    ),
    Number(
        "A draft guesses three tokens a round, and each guess is kept with probability 0.8 wherever it stands. Drafting and the wider pass make a round cost 1.4 plain steps. How many times as fast as plain decoding is that?",
        speedup(expected_tokens([0.8] * 3), 0.4), "times", "τ = 1 + 0.8 + 0.64 + 0.512 = 2.952 tokens a round, over 1.4.", by_hand=2.952 / 1.4, tolerance=0.01,
        slips={2.952: "That is tokens a round. A round costs more than a step.", (1 + 3 * 0.8) / 1.4: "A guess behind a rejected one is of no use: 0.8, 0.8², 0.8³.", 1.952 / 1.4: "The target's own token comes in every round too."},
        chapter=6,
    ),
    Number(
        "A static batch of four needs 4, 2, 10 and 3 tokens. How many of its slots give no token, over all steps?",
        WASTED, "slots", "It runs 10 steps: 6, 8, 0 and 7 slots are wasted.", by_hand=6 + 8 + 0 + 7,
        slips={40.0: "So many slots there are in all.", 19.0: "So many give a token."},
        chapter=7,
    ),
    Number(
        f"Conversations spend 12 s in the server with the L4, and it has room for {int(PLACES // (MEAN + 15 / 2))}. Which rate can it take at most, if the room is the limit?",
        int(PLACES // (MEAN + 15 / 2)) / 12, "requests per second", "Little's law, L = λ · W, read the other way round: 69 inside, 12 s each.", by_hand=69 / 12, tolerance=0.01,
        slips={69.0 * 12: "Rate times stay gives the number inside. Divide.", 12 / 69: "That is the time between two arrivals."},
        chapter=8,
    ),
    Order(
        "One request, from its arrival to its end. In which order does this happen?",
        [
            "It waits for a slot.", "The longest known beginning of its prompt is looked up.", "Pages are taken for the rest of the prompt.",
            "The rest of the prompt is computed, and the first token sampled.", "Each step appends one token, with a new page now and then.", "Its pages go back, or stay for whoever starts alike.",
        ],
        "Chapter 7, chapter 5, chapter 4, chapter 1, and chapter 4 again.",
    ),
]  # fmt: skip
