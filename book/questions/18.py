"""Questions of chapter 18."""

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.book.questions import Choice, Number, Option, Order
from kvedu.kernels import attention
from kvedu.kernels.launch import Chip
from kvedu.kernels.splits import keys_of_splits, splits_for

LLAMA = known_model("Llama-3-8B").shape
H200 = Chip.known(90)
STEP = attention.cost(1, 8191, LLAMA.n_heads, LLAMA.n_kv_heads, LLAMA.head_dim)
EMPTY = keys_of_splits(600, 16, 64).count(0)

QUESTIONS = [
    Choice(
        "Your decode kernel gives each query head a program of its own. The model has 32 query heads and 8 KV heads. What does packing the group change?",
        [
            Option("A fourth of the bytes of keys and values are asked for.", "Four query heads read one KV head. In one program they read it once.", True),
            Option("A fourth of the FLOPs.", "The products are the same, and rows of padding come on top."),
            Option("Nothing: the cache of the chip catches the repeated reads.", "Perhaps some, if the four programs run at the same time. Nothing promises it, and the bytes still cross from that cache to the multiprocessors."),
            Option("A fourth of the memory that the cache takes.", "That is what 8 KV heads instead of 32 do, whatever the kernel."),
        ],
    ),
    Number(
        "How many MB of keys and values of one layer must one decode step read for a sequence of 8,192 tokens of Llama-3-8B in bf16? (1 MB is a million bytes.)",
        round((STEP.read - LLAMA.n_heads * LLAMA.head_dim * 2) / 1e6, 2), "MB", "2 × 8,192 tokens × 8 KV heads × 128 numbers × 2 bytes.",
        by_hand=2 * 8192 * 8 * 128 * 2 / 1e6, tolerance=0.01,
        slips={round(4 * 2 * 8192 * 8 * 128 * 2 / 1e6, 2): "That is with 32 KV heads; query heads share them.", round(8192 * 8 * 128 * 2 / 1e6, 2): "Keys and values: two of them."},
    ),
    Number(
        f"A chip has {H200.processors} multiprocessors. 4 sequences decode, each of 65,536 tokens, with 8 KV heads. How many splits does the library's rule choose (tiles of 64 keys)?",
        splits_for(H200, 4 * 8, 65_536, 64), "splits", "Four programs a multiprocessor are 528; 32 programs are there already, and 528 / 32 is 16.5, rounded up. 17 shares of 61 tiles leave none empty.",
        by_hand=-(-4 * 132 // 32), slips={132 // 32: "That would be one program a multiprocessor, rounded down.", 65_536 // 256: "So many splits of four tiles there could be. The rule takes no more than fill the chip."},
    ),
    Choice(
        "Two parts of the keys gave results o1 and o2, each normalized, with sums of weights l1 and l2 and the same maximum. What is the attention over all keys?",
        [
            Option("(l1·o1 + l2·o2) / (l1 + l2)", "Each part counts as much as its weights sum to. With different maxima the sums are brought to the same one first, which is what the log-sum does.", True),
            Option("(o1 + o2) / 2", "Only if both parts have the same sum of weights."),
            Option("o1 + o2", "Both are normalized already; the sum of weights would be 2."),
            Option("It cannot be known any more; the scores are needed.", "One number for each part and query head is enough."),
        ],
    ),
    Number(
        "A sequence of 600 keys is cut into 16 splits of whole tiles of 64 keys, equal shares rounded up. How many splits are empty?",
        EMPTY, "splits", "600 / 16 is 37.5, so a share is one tile, and 600 keys fill ten tiles.", by_hand=16 - 10,
        slips={0: "A share is a whole tile: 37.5 keys become 64, and the keys run out early.", 7: "The tenth tile is partly filled: 600 = 9 × 64 + 24."},
    ),
    Choice(
        "A new decode kernel passes all tests with one sequence. In service the first user of each batch is happy, all others get nonsense. What do you look at first?",
        [
            Option("The stride of the block tables.", "The row of sequence b begins b strides further on. If the width of a slice is taken for it, only b = 0 is right.", True),
            Option("The softmax.", "It would be wrong for the first sequence too."),
            Option("The scale 1/√D.", "It is the same for all sequences."),
            Option("The page size.", "The first sequence reads its pages of that size rightly."),
        ],
    ),
    Order(
        "What does a program of the decode kernel do, in this order, for each tile of keys?",
        ["read the page's number from the table", "load the keys", "score them and hide those past the end", "take the weights into the running maximum and sum", "load the values and add them up"],
        "The page's number comes first, since the addresses hang on it. Values are not needed before the weights are known.",
    ),
    Number(
        "How many KiB does one token of Llama-3-8B take in the cache, over all layers, in bf16?",
        kv_bytes_per_token(LLAMA) / 1024, "KiB", "2 × 32 layers × 8 KV heads × 128 × 2 bytes.", by_hand=2 * 32 * 8 * 128 * 2 / 1024,
        slips={4 * kv_bytes_per_token(LLAMA) / 1024: "Query heads are not cached.", kv_bytes_per_token(LLAMA) / 2048: "Keys and values."}, chapter=2,
    ),
    Choice(
        "Why does a page of 16 tokens waste less memory than one of 256?",
        [
            Option("Only a sequence's last page is partly empty, half of it on average.", "So 8 places instead of 128 for each sequence.", True),
            Option("Its table is shorter.", "It is longer: sixteen times as many entries."),
            Option("A kernel reads fewer bytes from it.", "A kernel reads the tokens that are there, whatever the page size."),
        ],
        chapter=4,
    ),
]  # fmt: skip
