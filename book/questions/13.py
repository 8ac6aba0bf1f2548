"""Questions of chapter 13."""

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.analysis.strategies import strategies
from kvedu.analysis.weights import weight_bytes
from kvedu.book.questions import Choice, Number, Option, Order

QWEN = known_model("Qwen2.5-7B")
LLAMA = known_model("Llama-3-8B")
INT8 = next(s for s in strategies(128) if s.name == "int8")
PLAIN = kv_bytes_per_token(LLAMA.shape)
ROOM = int(0.9 * hardware("L4").memory) - weight_bytes(LLAMA.config)

QUESTIONS = [
    Number(
        "Qwen2.5-7B has 28 query heads and 4 KV heads. How many times smaller is its cache than with a KV head for each query head?",
        QWEN.shape.n_heads / QWEN.shape.n_kv_heads, "times", "H / K: the queries that share a KV head.", by_hand=28 / 4,
        slips={28: "That would be MQA.", 4: "That is the number of KV heads."},
    ),
    Number(
        "A head has 128 elements. In int8, with one scale of 2 bytes for each token's head, how many times smaller is it than in bf16? Two decimals.",
        round(PLAIN / INT8.held(LLAMA.config, 1), 2), "times", "256 bytes against 128 + 2.", by_hand=256 / 130, tolerance=0.004,
        slips={2.0: "The scale takes 2 bytes more."},
    ),
    Choice(
        "A strategy costs 1% of perplexity on Wikipedia and keeps the last 1,024 tokens. Users ask about contracts of 30,000 tokens. What do you expect?",
        [
            Option("Most answers are wrong.", "What is not in the cache cannot be found, and predicting the next word of an article hardly needs it.", True),
            Option("1% more errors.", "Perplexity is a mean over words that are mostly easy; lookups are the few that are not."),
            Option("No change, since attention goes to recent tokens anyway.", "On average it does. A lookup is when it does not."),
        ],
    ),
    Choice(
        "A lone user on a large GPU complains about slow tokens, at 500 tokens of context. Which of these helps?",
        [
            Option("Weights in fewer bits.", "At this length nearly all that a step reads is weights.", True),
            Option("A 2-bit cache.", "It saves most of a part that is a hundredth of the reading."),
            Option("MQA.", "It also saves on the cache alone, and needs another model."),
            Option("Evicting half of the tokens.", "Half of next to nothing."),
        ],
        chapter=1,
    ),
    Order(
        "Choosing a strategy, in the order that spares you work:",
        [
            "Compute what weights and caches take, and what room there is.",
            "Strike out what does not fit.",
            "Strike out what is too slow by bytes over bandwidth, and what needs another model.",
            "Measure what the rest loses, on your own task.",
            "Take what loses least.",
        ],
        "Bytes are free to compute; losses have to be measured.",
    ),
    Number(
        "An L4 has 24 GB, a tenth stays free, and Llama-3-8B's weights take 16.06 GB in bf16. How many sequences of 8,192 tokens fit in bf16? A token takes 131,072 bytes.",
        ROOM // (8192 * PLAIN), "sequences", "5.54 GB over 1.07 GB each.", by_hand=(0.9 * 24e9 - 16.06e9) // (8192 * 131072),
        slips={7: "That is without the tenth that stays free."}, chapter=2,
    ),
]  # fmt: skip
