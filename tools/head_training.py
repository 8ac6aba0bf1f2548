"""Train a draft head on the target's own distributions: the loop, seeded and resumable, and the loss of each kind of head."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator

import torch
from head_features import Features
from head_unroll import Sight, layer, rms, unroll
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, silu

from kvedu.model.transformer import Transformer
from kvedu.speculative.eagle_head import EagleHead
from kvedu.speculative.medusa_heads import MedusaHeads
from kvedu.speculative.mtp_heads import MtpHeads
from kvedu.speculative.vocabulary import DraftVocabulary

SAVE_EVERY = 40


@dataclass(frozen=True)
class Schedule:
    """How long and how fast: passes over the text, sequences a step, the highest learning rate, the share it ends at.

    ``muon`` updates matrices by Muon, which learns most in a single pass from a rough beginning; AdamW knows a text less by heart.
    """

    epochs: float = 2.0
    batch: int = 8
    rate: float = 8e-4
    warmup: int = 20
    end: float = 0.02
    seed: int = 7
    muon: bool = False


class Teacher:
    """The target's next-token distribution over the draft's tokens, from the outputs of its last block."""

    def __init__(self, target: Transformer, vocabulary: DraftVocabulary) -> None:
        self.norm_M, self.eps = target.norm.weight.detach().float(), target.config.norm_eps
        self.embed_VM = target.embed.weight.detach().to(torch.bfloat16)
        self.rows_RM = vocabulary.rows(target.head.plain_weight().detach()).to(torch.bfloat16)

    def likely(self, hidden_NM: Tensor) -> tuple[Tensor, Tensor]:
        """The ``LIKELY`` most likely of the draft's tokens after each output: probabilities and places ``[N, LIKELY]``."""
        logits_NR = linear(rms(hidden_NM, self.norm_M, self.eps).to(torch.bfloat16), self.rows_RM).float()
        return torch.softmax(logits_NR, dim=-1).topk(LIKELY, dim=-1)


LIKELY, SCORED = 24, 2048
"""Tokens that a target's distribution is kept of; tokens that a step scores."""


class Lesson:
    """What one step is taught: the targets of its places, over the ``SCORED`` tokens that matter most in this step.

    The full head would be two thirds of a step's work. Those that no place wants fill the number at random.
    """

    def __init__(self, teacher: Teacher, p_NL: Tensor, places_NL: Tensor, seed: int) -> None:
        R = len(teacher.rows_RM)
        mass_R = torch.zeros(R).index_add_(0, places_NL.flatten(), p_NL.flatten())
        mass_R += 1e-6 * torch.rand(R, generator=torch.Generator().manual_seed(seed))
        scored_C = mass_R.topk(min(SCORED, R)).indices
        column_R = torch.full((R,), -1).index_put((scored_C,), torch.arange(len(scored_C)))
        columns_NL = column_R[places_NL]
        p_NL = torch.where(columns_NL >= 0, p_NL, 0.0)
        p_NC = torch.zeros(len(p_NL), len(scored_C)).scatter_add_(1, columns_NL.clamp(min=0), p_NL)
        self.p_NC = p_NC / p_NC.sum(-1, keepdim=True).clamp(min=1e-9)
        self.rows_CM = teacher.rows_RM[scored_C]

    def loss(self, f_NM: Tensor, weight_N: Tensor) -> tuple[Tensor, float]:
        """Divergence of the draft's distributions from the targets, weighted and summed; and how often both prefer one token.

        The result has the right gradient and no graph through the head: d loss / d logits is q - p.
        """
        with torch.no_grad():
            log_q = torch.log_softmax(linear(f_NM.to(torch.bfloat16), self.rows_CM).float(), dim=-1)
            missed = float(((torch.special.entr(self.p_NC) + self.p_NC * log_q).sum(-1) * weight_N).sum())
            hits = float(((log_q.argmax(-1) == self.p_NC.argmax(-1)) * weight_N).sum())
            slope = ((log_q.exp_() - self.p_NC) * weight_N[:, None]).to(torch.bfloat16)
            goal_NM = linear(slope, self.rows_CM.T).float()
        surrogate = (f_NM.float() * goal_NM).sum()
        return surrogate + (-missed - surrogate.detach()), hits


Loss = Callable[[Tensor], tuple[Tensor, list[float]]]
"""Numbers of sequences to the loss of a step on them and what to print."""


def train(module: nn.Module, loss: Loss, sequences: int, schedule: Schedule, path: Path) -> Iterator[tuple[int, int]]:
    """Train in place, yielding (steps done, steps in all) whenever ``path`` was saved; goes on from ``path`` if it is there.

    Every choice is drawn from the schedule's seed and the step's number: stopped and resumed is as never stopped.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizers = made_for(parameters, schedule)
    batches = order(sequences, schedule)
    done = 0
    if path.is_file():
        saved = torch.load(path)
        module.load_state_dict(saved["state"], strict=False)
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        done = saved["done"]
    start, recent = time.process_time(), []
    for step in range(done, len(batches)):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate * min((step + 1) / schedule.warmup, 1 - (1 - schedule.end) * step / len(batches))
            optimizer.zero_grad()
        value, shown = loss(batches[step])
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        recent.append([float(value.detach()), *shown])
        if step % 10 == 9:
            mean, *agree = (sum(column) / len(recent) for column in zip(*recent))
            print(f"{path.stem} {step + 1}/{len(batches)}: loss {mean:.3f}, agree {' '.join(f'{x:.3f}' for x in agree)}, "
                  f"{(time.process_time() - start) / (step + 1 - done):.2f} CPU s a step", flush=True)  # fmt: skip
            recent = []
        if step % SAVE_EVERY == SAVE_EVERY - 1 or step == len(batches) - 1:
            state = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
            saved = {"state": state, "optimizers": [o.state_dict() for o in optimizers], "done": step + 1}
            torch.save(saved, beside := path.with_suffix(".new"))
            os.replace(beside, path)
            yield step + 1, len(batches)


def made_for(parameters: list[nn.Parameter], schedule: Schedule) -> list[torch.optim.Optimizer]:
    """AdamW for all; or Muon for matrices, which makes a step equally long in every direction, and AdamW for the rest.

    Muon: Jordan et al. 2024; step lengths as in 2502.16982. A step takes a fifth more time.
    """
    betas = (0.9, 0.95)
    if not schedule.muon:
        return [torch.optim.AdamW(parameters, lr=schedule.rate, betas=betas, weight_decay=0.01)]
    matrices, rest = ([p for p in parameters if (p.ndim == 2) is side] for side in (True, False))
    muon = torch.optim.Muon(matrices, lr=schedule.rate, weight_decay=0.01, momentum=0.9, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(rest, lr=schedule.rate, betas=betas, weight_decay=0.0)]


def order(sequences: int, schedule: Schedule) -> list[Tensor]:
    """Which sequences each step takes: a new permutation for each pass."""
    generator = torch.Generator().manual_seed(schedule.seed)
    steps = int(schedule.epochs * (sequences // schedule.batch))
    batches: list[Tensor] = []
    while len(batches) < steps:
        batches += [b for b in torch.randperm(sequences, generator=generator).split(schedule.batch) if len(b) == schedule.batch]
    return batches[:steps]


@dataclass(frozen=True)
class Text:
    """Features, and what the target foretells after each token: probabilities and places ``[B, T, LIKELY]``."""

    features: Features
    p_BTL: Tensor
    places_BTL: Tensor

    def __len__(self) -> int:
        return len(self.features)


def taught(teacher: Teacher, features: Features) -> Text:
    """The features with the target's distributions, made once for all passes."""
    found = [teacher.likely(features.hidden(b)) for b in range(len(features))]
    return Text(features, torch.stack([p for p, _ in found]), torch.stack([i.to(torch.int32) for _, i in found]))


def eagle_loss(head: EagleHead, teacher: Teacher, text: Text, depth: int, fade: float = 0.8) -> Loss:
    """Loss of the drafted tokens 1 to ``depth`` (training-time test), each ``fade`` times as heavy as the one before."""
    data = text.features

    def loss(which: Tensor) -> tuple[Tensor, list[float]]:
        T = int(data.lengths_B[which].max())
        ids_BT, features_BTE = data.ids_BT[which, :T].long(), data.features_BTE[which, :T]
        p_NL, places_NL = (x[which, 1:T].flatten(0, 1) for x in (text.p_BTL, text.places_BTL))
        lesson = Lesson(teacher, p_NL, places_NL.long(), int(which.sum()))
        place = torch.arange(T - 1)
        there_BT = place < data.lengths_B[which, None] - 1
        total, shown = torch.zeros(()), []
        with torch.autocast("cpu", dtype=torch.bfloat16):
            drafted = unroll(head, embedding(ids_BT, teacher.embed_VM), features_BTE, depth)
            for s, f_BTM in enumerate(drafted):
                weight_N = (there_BT & (place >= s)).flatten().float()
                value, hits = lesson.loss(f_BTM.flatten(0, 1), weight_N / weight_N.sum())
                total = total + fade**s * value
                shown.append(hits)
        return total, shown

    return loss


def medusa_loss(heads: MedusaHeads, teacher: Teacher, text: Text, fade: float = 0.8) -> Loss:
    """Head j at token i learns the target's distribution after token i + j + 1."""
    data = text.features

    def loss(which: Tensor) -> tuple[Tensor, list[float]]:
        T, k = int(data.lengths_B[which].max()), len(heads.heads)
        x_BTM = rms(data.hidden(which)[:, :T], heads.norm.weight, teacher.eps)
        p_NL, places_NL = (x[which, :T].flatten(0, 1) for x in (text.p_BTL, text.places_BTL))
        lesson = Lesson(teacher, p_NL, places_NL.long(), int(which.sum()))
        total, shown = torch.zeros(()), []
        for j in range(k):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                f_BTM = x_BTM + silu(linear(x_BTM, heads.heads[j].weight, heads.heads[j].bias))
            ahead_BTM = torch.cat((torch.zeros_like(f_BTM[:, : j + 1]), f_BTM[:, : T - j - 1]), dim=1)
            place = torch.arange(T)
            weight_N = ((place > j) & (place < data.lengths_B[which, None])).flatten().float()
            value, hits = lesson.loss(ahead_BTM.flatten(0, 1), weight_N / weight_N.sum())
            total = total + fade**j * value
            shown.append(hits)
        return total, shown

    return loss


def mtp_loss(heads: MtpHeads, teacher: Teacher, text: Text, fade: float = 0.8) -> Loss:
    """Module d pairs feature d of token i with token i + d + 1 and learns the target's distribution after that token."""
    data = text.features

    def loss(which: Tensor) -> tuple[Tensor, list[float]]:
        T = int(data.lengths_B[which].max())
        p_NL, places_NL = (x[which, 1:T].flatten(0, 1) for x in (text.p_BTL, text.places_BTL))
        lesson = Lesson(teacher, p_NL, places_NL.long(), int(which.sum()))
        place = torch.arange(T - 1)
        there_BT = place < data.lengths_B[which, None] - 1
        embedded_BTM = embedding(data.ids_BT[which, :T].long(), teacher.embed_VM)
        f_BTM = rms(data.hidden(which)[:, :T], heads.norm.weight, teacher.eps)
        total, shown = torch.zeros(()), []
        for d, step in enumerate(heads.steps):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                tokens = rms(embedded_BTM[:, d + 1 :], step.embed_norm.weight, teacher.eps)
                x_BTM = linear(torch.cat((tokens, f_BTM[:, : T - 1 - d]), dim=-1), step.fc.weight)
                f_BTM = rms(layer(step.block, Sight(step.block, T - 1 - d), x_BTM, teacher.eps), step.norm.weight, teacher.eps)
            ahead_BTM = torch.cat((torch.zeros_like(f_BTM[:, :d]), f_BTM), dim=1)
            weight_N = (there_BT & (place >= d)).flatten().float()
            value, hits = lesson.loss(ahead_BTM.flatten(0, 1), weight_N / weight_N.sum())
            total = total + fade**d * value
            shown.append(hits)
        return total, shown

    return loss


def draft_loss(draft: Transformer, teacher: Teacher, text: Text) -> Loss:
    """A small model learns the target's distribution after every token, from the text alone."""
    data, eps = text.features, draft.config.norm_eps

    def loss(which: Tensor) -> tuple[Tensor, list[float]]:
        T = int(data.lengths_B[which].max())
        p_NL, places_NL = (x[which, :T].flatten(0, 1) for x in (text.p_BTL, text.places_BTL))
        lesson = Lesson(teacher, p_NL, places_NL.long(), int(which.sum()))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x_BTM = embedding(data.ids_BT[which, :T].long(), teacher.embed_VM).float()
            for block in draft.layers:
                x_BTM = layer(block, Sight(block, T), x_BTM, eps)
        weight_N = (torch.arange(T) < data.lengths_B[which, None]).flatten().float()
        value, hits = lesson.loss(rms(x_BTM, draft.norm.weight, eps).flatten(0, 1), weight_N / weight_N.sum())
        return value, [hits]

    return loss
