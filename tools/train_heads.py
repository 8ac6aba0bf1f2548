"""Train the draft heads that are shipped for SmolLM2, and write them with a table that says how.

    python tools/train_heads.py [--work FOLDER] [--only eagle|medusa|mtp|draft] [--check]

Under 60 minutes on two quiet cores, by the processor time that every stage took (``heads.json`` has it): a quarter to sample
text from the target and run it, the rest to train. What is done is kept in FOLDER (``_build/heads``), so that a run that was
stopped goes on where it was. Writes ``src/kvedu/speculative/heads``.
``--check`` trains in a folder of its own and compares: same texts, acceptance within two points of what is shipped; it
stores the row ``train_heads``, which ``make rows`` makes anew.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Callable

import torch
from head_clock import clock, spent
from head_features import Features, features
from head_measure import acceptance
from head_more import more, prompts
from head_start import begin_mtp
from head_text import SEED, Sequence, corpus, counts, package_versions, text_hash
from head_training import Loss, Schedule, Teacher, Text, draft_loss, eagle_loss, medusa_loss, mtp_loss, taught, train
from unfinished import close_work, open_work

import kvedu.fetch
from kvedu.book.provenance import provenance
from kvedu.book.rows import save_row
from kvedu.speculative import shipped
from kvedu.speculative.eagle_head import HeadShape, fresh_head
from kvedu.speculative.first_layers import first_layers
from kvedu.speculative.head_files import write_head
from kvedu.speculative.medusa_heads import fresh_medusa
from kvedu.speculative.mtp_heads import fresh_mtp
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.vocabulary import DraftVocabulary

ROOT = Path(__file__).resolve().parents[1]
TAPS = (6, 18, 30)
R, LAYERS = 8192, 2
SHIPPED = ROOT / "src" / "kvedu" / "speculative" / "heads"


def joined(a: Features, b: Features) -> Features:
    """Both texts' sequences as one."""
    return Features(*(torch.cat(pair) for pair in ((a.ids_BT, b.ids_BT), (a.lengths_B, b.lengths_B), (a.features_BTE, b.features_BTE))), a.width)


class Lessons:
    """The target, the texts and what the target made of them: all that any head learns from."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.target = kvedu.load(dtype=torch.float32)
        fast = kvedu.load(dtype=torch.bfloat16).pack()
        written, self.read, left = corpus(fast, work)
        self.asked = prompts(fast, left)
        self.written = [s for s in written if not s.held_out]
        self.held_out = [s for s in written if s.held_out]
        self.vocabulary = DraftVocabulary.frequent(counts(self.target, self.written), R, always=self.target.config.eos_ids)
        self.teacher = Teacher(self.target, self.vocabulary)
        self.fast = fast

    @cached_property
    def own(self) -> Text:
        """What the target wrote."""
        return taught(self.teacher, features(self.fast, self.written, TAPS, self.work, "written"))

    @cached_property
    def all(self) -> Text:
        """That, and what is read."""
        read = taught(self.teacher, features(self.fast, self.read, TAPS, self.work, "read"))
        pairs = ((self.own.p_BTL, read.p_BTL), (self.own.places_BTL, read.places_BTL))
        return Text(joined(self.own.features, read.features), *(torch.cat(pair) for pair in pairs))

    @cached_property
    def more_sequences(self) -> list[Sequence]:
        """What the target wrote besides."""
        return more(self.fast, self.asked, self.work)

    @cached_property
    def more(self) -> Text:
        """That, with its features."""
        return taught(self.teacher, features(self.fast, self.more_sequences, TAPS, self.work, "more"))

    def run(self, name: str, module: torch.nn.Module, loss: Loss, text: str, schedule: Schedule) -> None:
        """Train, or go on, or find it done."""
        with clock(self.work, name):
            for _ in train(module, loss, len(getattr(self, text)), schedule, self.work / f"{name}.pt"):
                pass

    def texts(self) -> dict[str, Any]:
        """What was learned from, and what was held out, by number and hash."""
        groups = {"written": self.written, "more": self.more_sequences, "read": self.read, "held_out": self.held_out}
        return {
            "packages": package_versions(),
            "seed": SEED,
            "draft_vocabulary": R,
            **{name: {"sequences": len(s), "tokens": sum(len(x.ids) for x in s), "ids_sha256": text_hash(s)} for name, s in groups.items()},
        }


Trained = tuple[torch.nn.Module, dict[str, int | list[int]], dict[str, Any]]
"""A module, what its file must say of it, and how it was trained."""


def train_eagle(lessons: Lessons) -> Trained:
    """One token ahead on the target's own text, two on everything, three on its own text; then on text that is new."""
    head = fresh_head(HeadShape(lessons.target.config, TAPS, R), lessons.target)
    stages = (
        ("eagle-a", "own", 1, Schedule(2, 4, 1e-3, end=0.5)),
        ("eagle-b", "all", 2, Schedule(2, 4, 1e-3, end=0.3)),
        ("eagle-c", "own", 3, Schedule(1, 4, 3e-4)),
        ("eagle-d", "more", 3, Schedule(1.5, 4, 6e-4)),
    )
    for name, text, depth, schedule in stages:
        lessons.run(name, head, eagle_loss(head, lessons.teacher, getattr(lessons, text), depth), text, schedule)
    how = [{"text": text, "depth": depth, **asdict(schedule)} for _, text, depth, schedule in stages]
    return head, {"taps": list(TAPS)}, {"stages": how}


def train_medusa(lessons: Lessons) -> Trained:
    """Three heads on the target's own text."""
    target, schedule = lessons.target, Schedule(8, 8, 2e-3, muon=True)
    heads = fresh_medusa(HeadShape(target.config, (target.config.L,), R), target, 3)
    lessons.run("medusa", heads, medusa_loss(heads, lessons.teacher, lessons.own), "own", schedule)
    return heads, {"k": 3}, {"stages": [{"text": "own", **asdict(schedule)}]}


def train_mtp(lessons: Lessons) -> Trained:
    """Two modules on what the target wrote besides, from a linear guess."""
    target, schedule = lessons.target, Schedule(1, 8, 1e-3, muon=True)
    heads = fresh_mtp(HeadShape(target.config, (target.config.L,), R), target, 2)
    if not (lessons.work / "mtp.pt").is_file():
        with clock(lessons.work, "mtp-begin"):
            begin_mtp(heads, lessons.teacher, lessons.more.features)
    lessons.run("mtp", heads, mtp_loss(heads, lessons.teacher, lessons.more), "more", schedule)
    return heads, {"k": 2}, {"stages": [{"text": "more", **asdict(schedule)}]}


def train_draft(lessons: Lessons) -> Trained:
    """The target's own first layers learn to foretell it; embedding and output head stay the target's."""
    target, schedule = lessons.target, Schedule(2, 8, 1e-3, muon=True)
    model = first_layers(target, LAYERS)
    model.layers, model.norm = copy.deepcopy(model.layers), copy.deepcopy(model.norm)
    model.embed.requires_grad_(False)
    model.layers.requires_grad_(True)
    model.norm.requires_grad_(True)
    lessons.run("draft", model, draft_loss(model, lessons.teacher, lessons.all), "all", schedule)
    return model, {"layers": LAYERS}, {"stages": [{"text": "all", **asdict(schedule)}]}


TRAINED: dict[str, Callable[[Lessons], Trained]] = {"eagle": train_eagle, "medusa": train_medusa, "mtp": train_mtp, "draft": train_draft}
MAKERS: dict[str, Callable[..., Proposer]] = {"eagle": shipped.eagle, "medusa": shipped.medusa, "mtp": shipped.mtp, "draft": shipped.draft}


def main() -> int:
    """Train what is not trained yet, measure, write or compare; 1 where what came out is not as shipped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="where what is done is kept")
    parser.add_argument("--only", choices=TRAINED, help="one of the heads")
    parser.add_argument("--check", action="store_true", help="write no head; compare with what is shipped, and store the row")
    given = parser.parse_args()
    if given.check:
        work = folder = open_work(given.work or ROOT / "_build" / "heads_check", __file__)
    else:
        work, folder = given.work or ROOT / "_build" / "heads", SHIPPED
    for path in (work, folder):
        path.mkdir(parents=True, exist_ok=True)
    lessons = Lessons(work)
    rows, wrong = {}, []
    for name in [given.only] if given.only else TRAINED:
        rows[name] = made(lessons, name, folder)
        print(f"{name}: {json.dumps(rows[name]['held_out'])}", flush=True)
        if given.check:
            wrong += differences(name, rows[name], shipped.table())
        else:
            keep(rows[name], name, lessons)
    if given.check and not given.only:
        wrong += different_texts(lessons.texts(), shipped.table()["texts"])
        values = {"held_out": {name: row["held_out"] for name, row in rows.items()}, "differences": wrong, "texts": lessons.texts(), **took(work)}
        save_row("train_heads", values, command="python tools/train_heads.py --check", folder=ROOT / "bench" / "results")
        close_work(work)
    print("\n".join(wrong) or ("as shipped" if given.check else f"written to {SHIPPED.relative_to(ROOT)}"))
    return 1 if wrong else 0


def made(lessons: Lessons, name: str, folder: Path) -> dict[str, Any]:
    """Train one head, write its file, measure what was written, and say how it came about."""
    module, facts, how = TRAINED[name](lessons)
    path = folder / f"{name}.safetensors"
    write_head(path, name, module, lessons.vocabulary, lessons.target, **facts)
    proposer = MAKERS[name](lessons.fast, folder=folder)
    return how | {
        "weights": sum(p.numel() for p in module.parameters() if p.requires_grad),
        "file_bytes": path.stat().st_size,
        "file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "held_out": acceptance(lessons.fast, proposer, lessons.held_out),
        **provenance(),
    }


def keep(row: dict[str, Any], name: str, lessons: Lessons) -> None:
    """Enter a head in the table that is shipped with it."""
    path = SHIPPED / "heads.json"
    table = json.loads(path.read_text()) if path.is_file() else {"heads": {}}
    table |= {"target": kvedu.fetch.GGUF_NAME, "target_sha256": kvedu.fetch.GGUF_SHA256, "texts": lessons.texts()}
    table |= took(lessons.work)
    table["heads"][name] = row
    path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def took(work: Path) -> dict[str, Any]:
    """Seconds of every stage, and minutes of all: processor time halved, which two quiet cores would take."""
    seconds = spent(work)
    return {"seconds": seconds, "minutes_on_two_cores": round(sum(stage["cpu_s"] for stage in seconds.values()) / 120, 1)}


def differences(name: str, row: dict[str, Any], table: dict[str, Any]) -> list[str]:
    """Sentences for what is not as shipped: acceptance at any place off by more than two points."""
    found = []
    for kind, now in row["held_out"].items():
        then = table["heads"][name]["held_out"][kind]
        for place, (a, b) in enumerate(zip(now["by_position"], then["by_position"], strict=True), 1):
            if abs(a - b) > 0.02:
                found.append(f"{name}, {kind}: {a:.1%} of guesses at place {place} are kept, {b:.1%} as shipped")
    return found


def different_texts(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    """Sentences for texts that are not those of the shipped heads: other package versions, or another CPU's greedy choices."""
    return [
        f"the {name} text has hash {now[name]['ids_sha256'][:12]}, {then[name]['ids_sha256'][:12]} as shipped"
        for name in ("written", "more", "read", "held_out")
        if now[name]["ids_sha256"] != then[name]["ids_sha256"]
    ]


if __name__ == "__main__":
    raise SystemExit(main())
