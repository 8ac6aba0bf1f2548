"""What the draft heads learn from: sources of pinned packages, and continuations that the target itself writes.

A sequence has up to ``LENGTH`` tokens. *Read* ones are windows of source files. *Written* ones are a prompt and what
the target made of it, half of them greedily, half drawn: a draft has to foretell the target, not the world.
None of it is among the frozen texts, the standard library or a benchmark's prompts. Three packages and some
subjects are held out.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Iterator

import torch
from head_clock import clock
from torch import Tensor

from kvedu.engine.engine import Engine
from kvedu.errors import KveduError
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer

SEED = 7
LENGTH = 256
GROUP = 128
"""Sequences that are sampled together and saved at once."""
WRITTEN, READ = 768, 960
"""Sequences of each sort."""
READ_FROM = ("docutils", "fontTools", "jsonschema", "mpmath", "nbconvert", "networkx", "pydantic", "sphinx", "sqlalchemy",
             "sympy", "transformers")  # fmt: skip
HELD_OUT_FROM = ("jinja2", "nbformat", "tornado")
FILES = 110
"""At most so many files of each package."""
SUBJECTS = (
    "a lighthouse keeper", "how bread rises", "a lost letter", "why the sky is blue", "a train that never stops",
    "planting a garden", "the history of clocks", "two neighbors who argue", "how a bridge is built", "a quiet robot",
    "learning to swim", "a market at night", "how bees find their way", "an honest thief", "the first snow",
    "keeping a diary", "how a computer adds", "a voyage by canoe", "choosing a book", "a mountain village",
    "a city library", "how rain forms", "a broken violin", "the price of salt", "a night bus", "how glass is made",
    "an old photograph", "why leaves fall", "a chess club", "the invention of paper", "a small bakery", "how tides work",
)  # fmt: skip
HELD_OUT_SUBJECTS = ("a desert road", "how cheese is made", "an empty theater", "why birds migrate")
TASKS = (
    "Write a short story about {}.", "Explain {} to a student.", "Write a Python class that models {}, with comments.",
    "Write a JSON document with five records about {}.", "List ten facts about {}.", "Write a dialogue about {}.",
    "Write a Python function about {} and a test for it.",
)  # fmt: skip
OPENINGS = ("{}\n\n", "# {}\n\nIn this chapter", "The story of {} begins", "Everyone has an opinion about {}, but")


@dataclass(frozen=True)
class Sequence:
    """Token ids; ``read`` of them are given, the rest is the target's. ``kind``: code, chat or prose."""

    kind: str
    ids: list[int]
    read: int
    greedy: bool = False
    held_out: bool = False


@dataclass(frozen=True)
class Prompt:
    """What the target is to go on from, and how."""

    kind: str
    ids: list[int]
    sampling: Sampling
    held_out: bool


def source_files(packages: tuple[str, ...]) -> list[Path]:
    """Files of 2 to 60 kB without tests, at most ``FILES`` of each package, drawn by a seed; in a fixed order."""
    found = []
    for package in packages:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise KveduError(f"{package} is not installed; install the book's, labs' and test extras by constraints.txt")
        root = Path(spec.origin).parent
        files = [p for p in sorted(root.rglob("*.py")) if "test" not in str(p.relative_to(root)) and 2_000 < p.stat().st_size < 60_000]
        found += sorted(random.Random(f"{SEED} {package}").sample(files, min(FILES, len(files))))
    return found


def package_versions() -> dict[str, str]:
    """Versions of the packages that are read."""
    return {name: version({"fontTools": "fonttools"}.get(name, name)) for name in (*READ_FROM, *HELD_OUT_FROM)}


def read_sequences(model: Transformer) -> tuple[list[Sequence], list[Prompt]]:
    """Windows of source files: those to learn from as they stand, and the beginnings of those to go on from."""
    rng, windows, prompts = random.Random(SEED), [], []
    newline = {i for i in range(model.config.V) if b"\n" in model.tokenizer.token_bytes(i)}
    for held_out, packages in ((False, READ_FROM), (True, HELD_OUT_FROM)):
        for path in source_files(packages):
            ids = model.tokenizer.encode(path.read_text(encoding="utf-8"))
            starts = [0, *(i + 1 for i, token in enumerate(ids) if token in newline)]
            starts = [i for i in starts if i + LENGTH <= len(ids)]
            for start in sorted(rng.sample(starts, min(2, len(starts)))):
                windows.append(Sequence("code", ids[start : start + LENGTH], LENGTH, held_out=held_out))
            for start in sorted(rng.sample(starts, min(1, len(starts)))):
                prompts.append((ids[start : start + rng.randint(32, 128)], held_out))
    rng.shuffle(prompts)
    rng.shuffle(windows)
    return windows, [Prompt("code", ids, setting(i), held) for i, (ids, held) in enumerate(prompts)]


def setting(number: int) -> Sampling:
    """Every other one greedy, the others drawn from the target's own distribution or a sharper one."""
    return Sampling() if number % 2 else Sampling(temperature=(1.0, 0.7)[number // 2 % 2], seed=SEED + number)


def asked(model: Transformer) -> list[Prompt]:
    """Chat requests and openings of prose about every subject."""
    prompts = []
    for held_out, subjects in ((False, SUBJECTS), (True, HELD_OUT_SUBJECTS)):
        for i, subject in enumerate(subjects):
            for j, task in enumerate(TASKS):
                ids = model.tokenizer.chat([{"role": "user", "content": task.format(subject)}])
                prompts.append(Prompt("chat", ids, setting(i + j), held_out))
            for j, opening in enumerate(OPENINGS):
                text = opening.format(subject)
                prompts.append(Prompt("prose", model.tokenizer.encode(text[0].upper() + text[1:]), setting(i + j), held_out))
    return prompts


def corpus(model: Transformer, work: Path) -> tuple[list[Sequence], list[Sequence], list[Prompt]]:
    """What is written and what is read, and prompts that are left; what is sampled is kept in ``work`` group by group, so that a stopped run goes on."""
    windows, prompts = read_sequences(model)
    train, held = ([p for p in prompts if p.held_out is side] for side in (False, True))
    prompts = [*train[:700], *held[:64], *asked(model)]
    random.Random(SEED).shuffle(prompts)
    sequences: list[Sequence] = []
    for group in written(model, prompts[:WRITTEN], work):
        sequences += group
    return sequences, [s for s in windows if not s.held_out][:READ], prompts[WRITTEN:]


def written(model: Transformer, prompts: list[Prompt], work: Path) -> Iterator[list[Sequence]]:
    """Continuations by the target, prompts of one group in one batch."""
    for first in range(0, len(prompts), GROUP):
        path = work / f"sampled-{first // GROUP:03d}.json"
        if not path.is_file():
            with clock(work, path.stem):
                group = sample(model, prompts[first : first + GROUP])
            print(f"sampled {first + len(group)} of {len(prompts)} continuations", flush=True)
            beside = path.with_suffix(".new")
            beside.write_text(json.dumps([asdict(s) for s in group]))
            os.replace(beside, path)
        yield [Sequence(**fields) for fields in json.loads(path.read_text())]


def sample(model: Transformer, prompts: list[Prompt]) -> list[Sequence]:
    """What the target makes of each prompt, up to ``LENGTH`` tokens in all or its own end."""
    engine = Engine(model, cache_bytes=2**30)
    numbers = [engine.add(p.ids, max_new_tokens=LENGTH - len(p.ids), sampling=p.sampling) for p in prompts]
    while not engine.idle:
        engine.step()
    done = [engine.results(number)[0] for number in numbers]
    return [
        Sequence(p.kind, [*p.ids, *one.token_ids], len(p.ids), p.sampling.greedy, p.held_out)
        for p, one in zip(prompts, done, strict=True)
    ]


def counts(model: Transformer, written: list[Sequence]) -> Tensor:
    """How often each token id stands in the source files, and twenty times how often the target wrote it: ``[V]``."""
    texts = (model.tokenizer.encode(path.read_text(encoding="utf-8")) for path in source_files(READ_FROM))
    counts_V = sum(torch.bincount(torch.tensor(ids), minlength=model.config.V) for ids in texts)
    own = [i for s in written if not s.held_out for i in s.ids[s.read :]]
    return counts_V + 20 * torch.bincount(torch.tensor(own), minlength=model.config.V)


def text_hash(sequences: list[Sequence]) -> str:
    """SHA-256 of all token ids in order: names a training text."""
    digest = hashlib.sha256()
    for sequence in sequences:
        digest.update(json.dumps(sequence.ids).encode())
    return digest.hexdigest()
