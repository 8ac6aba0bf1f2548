"""Questions of chapter 1."""

from kvedu.analysis.flops import kv_projection_flops
from kvedu.analysis.known_models import known_model
from kvedu.book.questions import Choice, Number, Option, Order

CONFIG = known_model("SmolLM2-135M").config
assert CONFIG is not None
PROMPT, NEW = 500, 100
ONE = kv_projection_flops(CONFIG, 1, 1, True)
WITH = kv_projection_flops(CONFIG, PROMPT, NEW, True) // ONE
WITHOUT = kv_projection_flops(CONFIG, PROMPT, NEW, False) // ONE

QUESTIONS = [
    Choice(
        "Why is there no Q cache?",
        [
            Option("A query is used once, by its own token, in its own step.", "Later tokens bring their own queries and ask for the old keys and values only.", True),
            Option("Queries are too large to keep.", "A query head is as large as a key head. Size is not the reason: nobody would read it."),
            Option("Queries change when later tokens come.", "They do not: the causal mask keeps every old token as it was, its query too. It is just never asked for again."),
        ],
    ),
    Number(
        f"A prompt of {PROMPT} tokens, {NEW} new ones, with a cache. How many tokens go through a layer's key and value projections?",
        WITH, "tokens", f"Each of {PROMPT} + {NEW - 1} once: the last token is sampled, but never run.", by_hand=500 + 99,
        slips={PROMPT + NEW: "Nearly: the last token is sampled but never run.", NEW: "The prompt's tokens are projected too, once.", WITHOUT: "That is the number without a cache."},
    ),
    Number(
        "And without a cache?",
        WITHOUT, "tokens", f"{PROMPT} + {PROMPT + 1} + … + {PROMPT + NEW - 1}: every step runs the whole text again.", by_hand=sum(range(500, 600)),
        slips={WITH: "That is the number with a cache.", PROMPT * NEW: "Nearly: the text grows by a token in each step."},
    ),
    Order(
        "What happens to the new token in one layer of a decode step?",
        [
            "it is projected to a query, a key and a value",
            "query and key are rotated by the token's own position",
            "key and value are appended to the cache",
            "the query is scored against all keys, its own included",
            "a softmax turns scores into weights, which add up the values",
        ],
        "The key must be in the cache before the scores are taken, or the token does not see itself.",
    ),
    Choice(
        "You have cached a prompt and now change its fifth token. Which cached rows are still valid?",
        [
            Option("Those of the first four tokens.", "Everything after the change has seen it, from the second layer on. (In the first layer later rows depend on their own token and position only, but a cache is of all layers.)", True),
            Option("All but the fifth token's.", "Later tokens have attended to the fifth one, and carry what they saw into the next layer's keys and values."),
            Option("None: attention mixes everything with everything.", "Causal attention does not: the first four tokens never see the fifth."),
        ],
    ),
    Choice(
        "One user, a short context. Which upgrade makes decoding faster?",
        [
            Option("Twice the memory bandwidth.", "A decode step at batch 1 waits for the weights: twice the bandwidth helps up to twofold.", True),
            Option("Twice the FLOP/s.", "The arithmetic is idle most of the time already. A long prompt's prefill would gain from it."),
            Option("Twice the memory.", "More fits, but a step reads the same bytes at the same speed."),
        ],
    ),
    Choice(
        "A colleague's cached loop writes fluent, sensible text. What makes you believe in it?",
        [
            Option("Its greedy tokens equal those of the loop without a cache, its logits within rounding, past every length at which a buffer grows.", "Fluent is not the same as right: see `PositionOffByOne`.", True),
            Option("Ten more fluent samples.", "`PositionOffByOne` is fluent every time, and wrong every time."),
            Option("That it is faster by the factor that was expected.", "A cache that forgets half of its rows is faster still."),
        ],
    ),
]  # fmt: skip
