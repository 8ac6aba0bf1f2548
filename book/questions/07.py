"""Questions of chapter 7."""

from kvedu.analysis.batching import continuous_steps_between, mean_longest, static_utilization
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.book.questions import Choice, Number, Option

LENGTHS, SLOTS = range(1, 101), 4
LINE = [10] * 15 + [100]
LEAST, MOST = continuous_steps_between(LINE, SLOTS)
BUDGET, DECODES, PROMPT = 64, 14, 1000
LLAMA = kv_bytes_per_token(known_model("Llama-3-8B").shape)

QUESTIONS = [
    Number(
        "Lengths are uniform from 1 to 100, a static batch has four slots. How many steps does it last on average?",
        mean_longest(LENGTHS, SLOTS), "steps", "The largest of four uniform draws lies on average four fifths of the way.", by_hand=0.8 * 100.5, tolerance=0.03,
        slips={50.5: "That is the mean length. A static batch lasts as long as its longest.", 100: "That is the longest there can be, not the longest of four."},
    ),
    Number(
        "And which share of its slots yields a token?",
        100 * static_utilization(LENGTHS, SLOTS), "%", "The mean length over the mean of the longest of four.", by_hand=100 * 50.5 / 80.5, tolerance=0.03,
        slips={25: "One slot of four runs to the end, but the others do not stop at once."},
    ),
    Number(
        "Four slots, fifteen requests of 10 tokens and one of 100, continuous batching. How many steps can it take at most?",
        MOST, "steps", f"It takes {LEAST} to {MOST}: what decides is when the long one starts. First is best, last is worst. A scheduler that does not know the lengths cannot choose.",
        by_hand=(15 * 10 + 100 - 100) // 4 + 100, tolerance=0.01, slips={LEAST: "That is the fewest: the long one starts first.", 250: "That is one slot."},
    ),
    Number(
        f"The budget is {BUDGET} tokens a step, {DECODES} sequences decode. A prompt of {PROMPT:,} tokens arrives. After how many steps does it have its first token?",
        -(-PROMPT // (BUDGET - DECODES)), "steps", f"It gets {BUDGET} − {DECODES} = {BUDGET - DECODES} tokens a step, if nobody ends or joins meanwhile.", by_hand=20,
        slips={-(-PROMPT // BUDGET): "Decodes are served first: they take their part of the budget.", 1: "Only without a budget, and then everybody waits for it."},
    ),
    Choice(
        "Throughput and mean time per token are excellent, and one user complains that the text stops for seconds. Which number do you look at?",
        [
            Option("The longest gap between two tokens of one request.", "And at what the step in that gap computed: a long prompt, or only prompts. A mean hides it.", True),
            Option("The mean time per token again, over a longer time.", "One gap of seconds among thousands of tokens does not move a mean."),
            Option("The time to first token.", "The first token had come. The text stopped afterwards."),
        ],
    ),
    Choice(
        "Why is the second sequence in a decode step almost free, and the hundredth not?",
        [
            Option("All share one read of the weights; later arithmetic, and everybody's own cache, take over.", "With one sequence the read of the weights is what a step waits for.", True),
            Option("The scheduler takes longer the more there are.", "It plans in microseconds; a step takes milliseconds."),
            Option("The hundredth has to wait for the others.", "All run in the same step. The step itself gets longer."),
        ],
        chapter=1,
    ),
    Number(
        "Context 8,192, sequences of 600 tokens on average. How many times as many fit into the same memory if each takes only what it needs?",
        8192 * LLAMA / (600 * LLAMA), "times", "8,192 over 600, whatever the model: bytes per token cancel. That is where the paged rung of the ladder gets its slots.", by_hand=8192 / 600, tolerance=0.05,
        slips={600: "That is the length."}, chapter=2,
    ),
]  # fmt: skip
