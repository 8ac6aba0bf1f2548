"""Questions of chapter 14."""

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.book.questions import Choice, Number, Option, Order

PAGE = 16
PROMPT, COPIES, NEW = 200, 4, 40
SHARED, HELD = PROMPT // PAGE, -(-(PROMPT + NEW - 1) // PAGE)
LLAMA = kv_bytes_per_token(known_model("Llama-3-8B").shape)

QUESTIONS = [
    Choice(
        "Temperature is 0 and the seed is fixed. The same prompt gives two texts, at noon and at night. Which is the most likely reason?",
        [
            Option("At noon other requests were in the batch, and the kernels sum in another order for another batch.", "The last bit of a logit tips a close race, and everything after it follows.", True),
            Option("The cache held somebody else's keys.", "Then the text would be nonsense or a leak, and a test that compares with a run alone would be red every time."),
            Option("The seed was used up.", "At temperature 0 nothing is drawn."),
            Option("bf16 rounds at random.", "Rounding is fixed. What varies is the order of the sums."),
        ],
    ),
    Number(
        f"{COPIES} answers to one prompt of {PROMPT} tokens, {NEW} tokens each, in pages of {PAGE}. How many pages at the end? The last token of each answer is never stored.",
        SHARED + COPIES * (HELD - SHARED), "pages",
        f"The prompt's {SHARED} full pages are held once. Each copy has {HELD - SHARED} of its own.",
        by_hand=12 + 4 * 3,
        slips={COPIES * HELD: "The prompt's full pages are shared.", HELD: "Each copy writes its own pages."},
    ),
    Order(
        "A token in the middle of a cached text is edited. What happens, layer by layer?",
        [
            "The first layer's key and value of this token change, and nobody else's.",
            "The first layer's outputs of all later tokens change, since they look at it.",
            "The second layer's keys and values of this token and of all later ones change.",
            "The logits of the last token change.",
        ],
        "What is before the edit stays as it is, in all layers.",
    ),
    Choice(
        "A customer's LoRA adapter changes the last layer's output matrix only. May its requests share the prefix cache of the base model?",
        [
            Option("In principle yes, but only because no key or value lies above the change.", "Keys and values of a layer are made from its input. Nothing is computed from the last layer's output but the logits. An engine would have to know that; a salt is the safe rule.", True),
            Option("No, a change anywhere changes all keys.", "It changes what is computed after it. Layers below the change are untouched."),
            Option("Yes, adapters never touch the cache.", "One in any lower layer changes the keys and values of all layers above it."),
        ],
    ),
    Choice(
        "The monitor shows 75 GB in use on an idle server. What follows?",
        [
            Option("Nothing about requests: the pool is taken at the start and kept.", "Ask the engine how many pages are in use.", True),
            Option("There is a leak.", "There may be one; this number cannot tell. Pages in use that never fall to zero could."),
            Option("The pages are fragmented.", "A page fits any sequence, so free pages are never too scattered to use."),
        ],
        chapter=4,
    ),
    Number(
        "Llama-3-8B in bf16, a text of 4,096 tokens to be read back from a disk at 2 GB/s. How many milliseconds?",
        round(1e3 * 4096 * LLAMA / 2e9), "ms", "4,096 tokens of 128 KiB each, over 2 · 10⁹ bytes a second.",
        by_hand=4096 * 128 * 1024 / 2e9 * 1e3, tolerance=0.02,
        slips={round(4e3 * 4096 * LLAMA / 2e9): "The model has 8 KV heads, not 32."}, chapter=2,
    ),
]  # fmt: skip
