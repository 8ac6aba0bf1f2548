"""Questions of chapter 8."""

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.analysis.serving import Server, server
from kvedu.book.questions import Choice, Number, Option, Order
from kvedu.units import GiB

LLAMA = known_model("Llama-3-8B").config
assert LLAMA is not None
A100 = server(LLAMA, hardware("A100-80GB-SXM"), prompt=500, output=150)
CONTEXT, RUNNING = 575, 26
HELD = kv_cache_bytes(LLAMA, CONTEXT, RUNNING) / GiB
MADE = Server(weights=8e-3, compute=0.15e-3, cache=0.05e-3, steps=100)
TTFT, LATENCY, TOKENS = 0.3, 2.3, 101
TPOT = 1e3 * (LATENCY - TTFT) / (TOKENS - 1)

QUESTIONS = [
    Order(
        "A request's way through a busy server. In which order do these moments come?",
        ["The user presses Enter.", "The engine learns of the request.", "It gets a slot.", "The step ends that computes the last of its prompt.", "Its last token is sampled."],
        "TTFT runs from the first moment to the fourth. A watch that starts at the second or third leaves out the wait.",
    ),
    Number(
        f"An answer of {TOKENS} tokens is complete after {LATENCY} s; its first token came after {TTFT} s. What is its TPOT?",
        TPOT, "ms", f"({LATENCY} - {TTFT}) s over {TOKENS - 1} gaps.", by_hand=2000 / 100, tolerance=0.002,
        slips={
            1e3 * LATENCY / TOKENS: "That has the wait for the first token in it.",
            1e3 * (LATENCY - TTFT) / TOKENS: "101 tokens have 100 gaps between them.",
        },
    ),
    Number(
        "12 requests come each second, and each spends 2.5 s in the system. How many are in it on average?",
        12 * 2.5, "requests", "Little's law: rate times stay. Order, lengths and hardware do not matter.", by_hand=30,
        slips={12 / 2.5: "That is the rate over the stay; L = λ · W.", 12: "That is how many come in a second; each of them stays longer."},
    ),
    Number(
        "A step reads the weights for 8 ms. Each sequence adds 0.15 ms of arithmetic, which overlaps with that reading, and 0.05 ms of cache, which does not. Where is the knee?",
        MADE.knee, "sequences", "A full machine gives a token every 0.2 ms, a lone sequence one every 8.05 ms. The knee is their ratio.", by_hand=8.05 / 0.2, tolerance=0.02,
        slips={
            MADE.compute_bound_from: "From there the arithmetic takes longer than the reading. But each sequence pays for its cache, too.",
            MADE.weights / MADE.cache: "There the cache takes as long as the weights. The arithmetic is in the way before.",
        },
    ),
    Choice(
        f"One sequence alone, Llama-3-8B on an A100: a step takes {1e3 * A100.step(1):.1f} ms. What is it waiting for?",
        [
            Option("For the weights.", f"Reading them is {A100.weights / A100.step(1):.0%} of it. The next sequences share that reading, which is why they are nearly free.", True),
            Option("For its cache.", f"That is {A100.cache / A100.step(1):.1%} of the time at {CONTEXT} tokens of context."),
            Option("For the arithmetic.", f"One sequence's share would take {1e3 * A100.compute:.1f} ms; it overlaps with the reading."),
        ],
        chapter=1,
    ),
    Number(
        f"{RUNNING} sequences of {CONTEXT} tokens run on that server, in bf16. How much memory do their caches take? (32 layers, 8 KV heads of size 128.)",
        HELD, "GiB", "128 KiB a token. Beside the weights there is room for many more: here time is the limit, not memory.",
        by_hand=RUNNING * CONTEXT * 2 * 8 * 128 * 2 * 32 / 2**30, tolerance=0.03,
        slips={HELD * LLAMA.G: "You have counted query heads.", HELD / 2: "Keys and values, or two bytes: one factor of 2 is missing.", HELD / RUNNING: "That is one sequence."},
        chapter=2,
    ),
    Choice(
        "You double `max_running`, and nothing changes: not TTFT, not TPOT, not throughput. Why?",
        [
            Option("The ceiling was never reached.", "Under open load the batch is λ · n · t(B), whatever the ceiling is; it matters only below that.", True),
            Option("The server is saturated.", "Then a higher ceiling would let more in: first tokens sooner, the others later."),
            Option("The knee has been passed.", "Past the knee more sequences still make every step longer. You would see it in TPOT."),
        ],
    ),
    Choice(
        "A colleague reports a median TTFT of 40 ms, measured in a loop that sends a request, waits for the answer and sends the next. What does it say about a service for people?",
        [
            Option("How long a prefill takes, and nothing about waiting.", "It is a closed load of one client: nobody ever waits in it. Ask for the 99th percentile at the rate at which people come.", True),
            Option("That half of the users will wait less than 40 ms.", "Only if there is never more than one of them."),
            Option("That the service could serve 25 requests a second.", "The answer takes longer than its first token, and a batch would serve more. It says nothing about rates."),
        ],
    ),
]  # fmt: skip
