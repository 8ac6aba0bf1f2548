"""Questions of chapter 17."""

import math

from kvedu.analysis.known_models import known_model
from kvedu.book.questions import Choice, Number, Option
from kvedu.kernels.traffic import attention_traffic, naive_traffic
from kvedu.kernels.walk import walk
from kvedu.units import GiB

N, H = 8192, 32
ROWS, KEYS = 64, 64
BLOCKS = walk(1024, 0, 4, ROWS, KEYS)
LOADED = sum(len(block.tiles) for block in BLOCKS)
MERGED = 2 * math.exp(-3) + 4  # (m, l) of (2, 2) and (5, 4), at the maximum 5
SMALL, LARGE = (attention_traffic([(N, 0)], 32, 8, 128, rows, 64) for rows in (16, 128))
UNTILED = naive_traffic(N, 0, 32, 8, 128)

QUESTIONS = [
    Number(
        f"One layer with {H} query heads runs a prompt of {N:,} tokens without FlashAttention and keeps one matrix of scores in bf16. How much memory is it?",
        H * N * N * 2 / GiB, "GiB", "32 heads × 8,192² scores × 2 bytes. The softmax writes a second one.", by_hand=4.0,
        slips={H * N * N * 4 / GiB: "That is fp32, 4 bytes a number.", N * N * 2 / GiB: "That is one head's.", 8 * N * N * 2 / GiB: "Scores belong to query heads; sharing keys does not share scores."},
    ),
    Number(
        "Two parts of a row have maximum and sum (2, 2) and (5, 4), base e. What is the sum of the merged row, at its maximum of 5?",
        round(MERGED, 4), "", "The first part shrinks by e⁻³, to 0.0996; the second stays.", by_hand=2 * 0.0497871 + 4, tolerance=0.002,
        slips={6: "The first sum belongs to a smaller maximum: it shrinks first.", round(2 + 4 * math.exp(3), 4): "That is the sum at the maximum 2; the larger maximum counts.", round(2 * math.exp(3) + 4, 4): "It shrinks, by e⁻³; it does not grow."},
    ),
    Choice(
        "A kernel forgets to rescale its accumulator when the running maximum grows (it does rescale the sum). On which input does a test see nothing?",
        [
            Option("A prompt whose first token has the largest score in every row.", "The maximum never grows after the first tile, so nothing has to shrink. Attention sinks make many real heads like that.", True),
            Option("Scores that rise along the row.", "Every tile brings a new maximum: that is the input that shows it best."),
            Option("A prompt that is twice as long as a tile, with random scores.", "In about half of the rows the second tile brings the larger maximum, and those come out wrong."),
        ],
    ),
    Choice(
        "Your GPU runs out of memory in decode, at a batch of 64 with long contexts. A colleague proposes to turn on FlashAttention. What will it save?",
        [
            Option("Next to nothing: a decode step has one row of scores per head.", "The memory is in the KV cache. Fewer KV heads, fewer bits, pages or fewer tokens help.", True),
            Option("The scores matrix, which grows as n².", "Only where n queries meet n keys at one time: in prefill."),
            Option("Half of the cache, since tiles above the diagonal are not loaded.", "What is not loaded is still stored; and a decode step's one row sees all of it."),
        ],
    ),
    Number(
        f"A prompt of 1,024 tokens, 4 query heads per KV head, blocks of {ROWS} rows, tiles of {KEYS} keys. How many tiles of keys do the programs of one KV head load in all?",
        LOADED, "tiles", "64 blocks of 16 tokens; four blocks in a row end in the same tile, so 4 × (1 + 2 + … + 16).", by_hand=4 * 16 * 17 / 2,
        slips={64 * 16: "Tiles above the diagonal are not loaded.", 16 * 17 / 2: "A block of 64 rows holds 16 tokens, not 64: each has 4 heads."},
    ),
    Choice(
        f"A kernel is written with blocks of 16 rows, because the shared memory of an old chip is small. With 32 query heads and 8 KV heads of 128, as in Llama-3-8B, and {N:,} tokens its traffic is {SMALL.bytes / UNTILED.bytes:.1f} times the untiled product's. Why use it at all?",
        [
            Option("It still needs no matrix of scores in memory.", f"Memory is O(n) with any block. Traffic falls with the rows: with 128 it would be {LARGE.bytes / UNTILED.bytes:.2f} times the untiled one's.", True),
            Option("It does fewer FLOPs.", "It does the same; blocks of any size skip what lies above the diagonal."),
            Option("There is no reason: fewer bytes are the point.", "Fewer bytes moved is one point, fewer bytes held another. A prompt that does not fit is not slow, it fails."),
        ],
    ),
    Choice(
        "You evict tokens by the attention that they get (chapter 13). With FlashAttention the weights are never in memory. What does a system do?",
        [
            Option("It computes scores again for the rows that the policy looks at, such as the last few queries.", "That costs a pass over the keys, for a window of queries, once per prompt. Policies that want every weight of every step give the saving away.", True),
            Option("It reads them from the log-sums that the kernel leaves.", "A log-sum is one number a row; it says what to divide by, not who got what."),
            Option("It cannot be done.", "Weights can always be computed again, from the queries and keys."),
        ],
        chapter=13,
    ),
    Number(
        "Llama-3-8B holds a prompt of 8,192 tokens. How large are its keys and values in bf16, all layers together, however attention is computed?",
        2 * known_model("Llama-3-8B").config.L * known_model("Llama-3-8B").config.K * known_model("Llama-3-8B").config.D * 2 * 8192 / GiB, "GiB",
        "128 KiB a token. FlashAttention does not change a byte of it.", by_hand=8192 * 128 / 1024**2,
        slips={4.0: "The model has 8 KV heads, not 32.", 0.5: "Keys and values are two tensors."}, chapter=2,
    ),
]  # fmt: skip
