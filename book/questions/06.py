"""Questions of chapter 6."""

from kvedu.analysis.cost import step_time
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.analysis.speculation import best_depth, expected_tokens, speedup
from kvedu.book.questions import Choice, Number, Option, Order
from kvedu.units import MiB

TAU = expected_tokens([0.7] * 3)
ALPHA = min(0.5, 0.2) + min(0.3, 0.3) + min(0.2, 0.5)
DRAFTED = best_depth([0.6] * 8, lambda k: 0.2 * k)[0]
LLAMA = known_model("Llama-3-8B").config
assert LLAMA is not None
GPU = hardware("H100-SXM")
ONE, FIVE = (1e3 * step_time(LLAMA, GPU, new_tokens=n, context=1000) for n in (1, 5))
KEPT_BYTES = 2 * kv_bytes_per_token(LLAMA) / MiB

QUESTIONS = [
    Number(
        "A guess is kept with probability 0.7 wherever it stands, and three are guessed in each round. How many tokens does a pass of the target yield on average?",
        TAU, "tokens", "1 + 0.7 + 0.49 + 0.343: the target's own token always, the first guess in 70% of the rounds, the second only behind a kept first one.",
        by_hand=(1 - 0.7**4) / (1 - 0.7), tolerance=0.005,
        slips={1 + 3 * 0.7: "That counts a guess behind a rejected one too. Nothing behind a wrong guess is of use.", TAU - 1: "The target's own token is missing: correction or bonus, there is always one.", 0.7 * 4: "Each guess is reached less often than the one before; and the target's own token is sure."},
    ),
    Number(
        f"Such a round costs 1.5 plain steps, drafting included. How many times as fast as plain decoding is that?",
        speedup(TAU, 0.5), "times", "τ / (1 + c), with c = 0.5.", by_hand=2.533 / 1.5, tolerance=0.01,
        slips={TAU: "That is tokens per pass. A round takes longer than a pass.", TAU / 0.5: "c is what a round costs *beyond* a step: divide by 1 + c."},
    ),
    Number(
        "p = (0.5, 0.3, 0.2) and q = (0.2, 0.3, 0.5). Guesses are drawn from q. Which share of them is kept?",
        ALPHA, "(a share of 1)", "What both have in common: 0.2 + 0.3 + 0.2.", by_hand=0.7, tolerance=0.001,
        slips={0.2 * 0.5 + 0.3 * 0.3 + 0.5 * 0.2: "That is how often two independent draws agree. The rule keeps far more than that.", 1 - ALPHA: "That share is rejected."},
    ),
    Choice(
        "In that example a guess of token 2 was rejected. From which distribution is the correction drawn?",
        [
            Option("Token 0, always.", "max(p − q, 0) = (0.3, 0, 0). Token 1 has been proposed as often as it should come, token 2 too often.", True),
            Option("From p.", "Then tokens 1 and 2 would come again, beyond the share that they have had. That is the commonest mistake, and a goodness-of-fit test sees it."),
            Option("From p without token 2, scaled.", "Right if the guess had been looked up instead of drawn. Here token 1 has already had its full share."),
            Option("From q without token 2.", "The draft has had its say. What is missing is what the *target* has beyond it."),
        ],
    ),
    Choice(
        "A draft model is swapped for a much worse one. What happens to the text, sampled at temperature 0.8 under the exact rule?",
        [
            Option("It is distributed as before, and comes more slowly.", "The proof asks nothing of q. With another draft another text comes out of one seed, but from the same distribution.", True),
            Option("It gets worse, as the draft is worse.", "No guess stays that the target's distribution does not account for."),
            Option("Nothing: the same text at the same speed.", "Fewer guesses are kept, so more passes are needed; and random numbers are used otherwise, so a seed gives another text."),
        ],
    ),
    Order(
        "One round of a draft model and its target. Put the acts in order.",
        ("the draft runs what it has not run of the text", "the draft guesses k tokens, one pass each", "the target runs the last token and all guesses in one pass", "guesses are kept up to the first rejected one", "the target's token is put behind them", "both caches forget what was rejected"),
        "The last act is where a draft's cache goes stale: when all guesses were kept, the last of them was never run by the draft.",
    ),
    Number(
        "Guesses are kept with probability 0.6 wherever they stand, and each costs a fifth of a plain step, drafting and verifying together. How many guesses are best?",
        DRAFTED, "guesses", "τ(k) / (1 + 0.2 k): 1.33 for one guess, 1.40 for two, 1.36 for three.", by_hand=2,
        slips={8: "Guesses far back are seldom reached, and cost as much as the first.", 1: "The second one is reached in 60% of the rounds; it still pays."},
    ),
    Choice(
        "On a processor with two cores speculation makes one user's answers twice as fast. With 16 users on the same machine it makes them slower. Why?",
        [
            Option("A pass of 16 sequences has no arithmetic to spare: five times as many rows take nearly five times as long.", "Guesses are free as long as a pass waits for memory. A full batch waits for arithmetic, and rejected guesses are arithmetic thrown away.", True),
            Option("The users' guesses get mixed up.", "Each sequence sees its own tokens only."),
            Option("Acceptance falls with the batch.", "It belongs to each text by itself; the batch does not change it."),
            Option("The weights are read for each guess.", "They are read once for a pass, whatever it brings."),
        ],
    ),
    Number(
        f"Llama-3-8B in bf16: a round runs the last token and four guesses, and two guesses are kept. How much of its cache's memory, in MiB, held keys and values of rejected guesses?",
        KEPT_BYTES, "MiB", "Two rejected guesses of 128 KiB each. They are given back at once; in a paged cache perhaps not even a page changes.", by_hand=2 * 128 / 1024, tolerance=0.001,
        slips={2.5 * KEPT_BYTES: "Five tokens were run; two of them were rejected.", 1.5 * KEPT_BYTES: "Three tokens were kept, the last one of the text and two guesses; two were rejected."}, chapter=2,
    ),
    Choice(
        "Why does a pass over five tokens take about as long as one over a single token, at batch 1?",
        [
            Option("Both read all weights once, and that is what they wait for.", f"By the roofline of an H100, Llama-3-8B takes {ONE:.1f} ms for one token and {FIVE:.1f} ms for five, 1,000 tokens cached.", True),
            Option("Four of the five are in the cache already.", "None of them is: their keys and values are made in this pass."),
            Option("Attention of five queries costs as much as that of one.", "It costs five times the arithmetic. It is a small part of a pass at this length, and its keys are read once."),
        ],
        chapter=1,
    ),
]  # fmt: skip
