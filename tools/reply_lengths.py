"""Let the book's model answer 156 requests until it stops by itself, and store how long each one was.

    python tools/reply_lengths.py [--requests N]          # some 4 minutes on two cores

The requests: questions, follow-ups to their answers, tasks on passages of the frozen texts, and the recall set.
Sampled at temperature 0.8 with a seed each, at most 1,024 new tokens. Writes ``bench/results/reply_lengths.json``:
tokens of prompt and reply, request by request. Chapter 4 and the tests of paging use them as their length mix.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import kvedu
from kvedu import texts
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.book.rows import save_row
from kvedu.engine.engine import Engine
from kvedu.model.dtype import fast_dtype
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer

TEMPERATURE, MAX_NEW_TOKENS = 0.8, 1024
QUESTIONS = (
    "Why is the sky blue?", "What is the capital of Peru?", "How do I boil an egg?", "Write a short poem about rain.",
    "What is a prime number?", "Give me three ideas for a birthday present.", "How does a bicycle stay upright?",
    "Explain what a database index is.", "Who was Marie Curie?", "Write an email that asks for a day off.",
    "What is the difference between a crocodile and an alligator?", "How many minutes are in a day?",
    "Tell me a story about a lighthouse.", "What does 'ad hoc' mean?", "How do vaccines work?", "List five rivers in Africa.",
    "How do I sort a list in Python?", "Why do cats purr?", "Give me a recipe for pancakes.", "What causes tides?",
    "Translate 'good morning' into Spanish.", "What should I pack for a weekend in the mountains?",
    "How is paper made?", "Suggest a name for a bakery.", "What is compound interest?", "Why do leaves change color?",
    "Describe the taste of a lemon.", "How do I tie a bowline?", "What is the square root of 144?",
    "Write a haiku about the sea.", "How does a refrigerator work?", "What are the rules of chess, in brief?",
    "Why is bread left to rise?", "How can I sleep better?", "What is photosynthesis?", "Name three kinds of clouds.",
    "How do airplanes fly?", "Write the opening of a detective novel.", "What is a leap year?", "How do I remove a wine stain?",
    "What is the largest planet?", "Explain recursion with an example.", "How far away is the Moon?",
    "Give me two arguments for and two against zoos.", "What is inflation?", "How do I change a bicycle tube?",
    "What makes a good teacher?", "Write a thank-you note to a neighbor.",
)  # fmt: skip
FOLLOW_UPS = ("Thank you. Say it in one sentence.", "Can you explain that to a child?", "Give me an example.", "Why is that?")
TASKS = {
    "prose": "Summarize this text.", "story": "What happens in this part of the story?",
    "dialogue": "Who is talking here, and about what?", "code": "Explain what this code does.",
    "json_logs": "What do these lines say?", "tables": "What can be read from this table?",
}  # fmt: skip
SIZES = (400, 900, 1600, 2400)
"""Characters of a passage."""


def on_passages() -> list[str]:
    """A task on a passage of a frozen text, passages of four sizes in turns."""
    requests = []
    for name in texts.names()[:-1]:
        text, start = texts.read(name), 0
        for i in range(7):
            size = SIZES[i % len(SIZES)]
            requests.append(f"{TASKS[name]}\n\n{text[start : start + size]}")
            start += size
            if start + SIZES[0] > len(text):
                break
    return requests


def on_facts() -> list[str]:
    """Questions of the recall set, every second one."""
    return [f"{item.context}\n\nComplete the sentence: {item.cue} ..." for item in texts.recall_items()[::2]]


def serve(engine: Engine, chats: list[list[dict[str, str]]]) -> list[tuple[int, int, str, str]]:
    """Prompt tokens, reply tokens, how it ended and the reply of each chat."""
    numbers = [
        engine.add(chat, max_new_tokens=MAX_NEW_TOKENS, sampling=Sampling(temperature=TEMPERATURE, seed=i))
        for i, chat in enumerate(chats)
    ]
    while not engine.idle:
        engine.step()
        print(f"\r{sum(map(engine.done, numbers))} of {len(numbers)} done", end="", flush=True)
    print()
    done = [engine.results(number)[0] for number in numbers]
    return [(len(d.prompt_ids), len(d.token_ids), d.finish_reason, d.text) for d in done]


def engine_for(model: Transformer) -> Engine:
    """Room for what runs; 32 at a time."""
    return Engine(model, cache_bytes=24_000 * kv_bytes_per_token(model.config, model.dtype.itemsize), max_running=32)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=156, help="how many of them, for a quick look")
    options = parser.parse_args(argv)
    dtype, why = fast_dtype("cpu")
    print(f"{dtype} ({why})", flush=True)
    model = kvedu.load(dtype=dtype).pack()
    single = [*QUESTIONS, *on_passages(), *on_facts()]
    chats = [[{"role": "user", "content": content}] for content in single]
    kinds = ["question"] * len(QUESTIONS) + ["passage"] * len(on_passages()) + ["fact"] * len(on_facts())
    first = serve(engine_for(model), chats[: options.requests])
    follow = [
        [*chats[i], {"role": "assistant", "content": first[i][3]}, {"role": "user", "content": FOLLOW_UPS[i % len(FOLLOW_UPS)]}]
        for i in range(min(len(QUESTIONS), len(first), options.requests - len(first)))
    ]
    found = first + serve(engine_for(model), follow)
    kinds = kinds[: len(first)] + ["follow-up"] * len(follow)
    values = {
        "requests": len(found),
        "kinds": dict(Counter(kinds)),
        "prompt_tokens": [row[0] for row in found],
        "reply_tokens": [row[1] for row in found],
        "ended": dict(Counter(row[2] for row in found)),
        "temperature": TEMPERATURE,
        "max_new_tokens": MAX_NEW_TOKENS,
        "dtype": str(dtype).removeprefix("torch."),
        "texts_sha256": {name: texts.sha256(name) for name in texts.names()},
    }
    for name in ("prompt_tokens", "reply_tokens"):
        lengths = sorted(values[name])
        print(f"{name}: {lengths[0]} to {lengths[-1]}, median {lengths[len(lengths) // 2]}, mean {sum(lengths) / len(lengths):.0f}")
    print(values["kinds"], values["ended"])
    save_row("reply_lengths", values, command=" ".join(["python", "tools/reply_lengths.py", *argv]))


if __name__ == "__main__":
    main(sys.argv[1:])
