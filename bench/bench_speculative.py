"""Speculative decoding of SmolLM2 against plain decoding of the same engine, batch 1: every way of guessing, on the held-out set.

    python bench/bench_speculative.py [--save] [--only n-gram eagle] [--quick]

The set (``kvedu.texts.held_out``): 20 continuations of code by 128 tokens, 10 tasks of edit or extract by 80, 10 of prose
and 10 at temperature 1 by 128. Each prompt is decoded plainly and by each proposer in turn, and only decoding is
timed, not the prompt's pass. What a round costs (c) is measured apart, before and after each part of the set, on frozen texts
that are not in it: passes by their rows, drafts by themselves (the first one runs the prompt), a draw from the target's
distribution where tokens are drawn. So the predicted speed-up, τ / (1 + c), knows of the set only how many tokens a round gave,
and of how many rows. Then the batch is swept until guesses lose. Two cores, in bf16 where they have it; some thirteen minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Callable, Iterable, Sequence

import torch

import kvedu
from kvedu import Sampling
from kvedu.analysis.cost import interpolate
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.analysis.speculation import break_even, speedup
from kvedu.book.rows import save_row
from kvedu.engine.depths import Full, Measured
from kvedu.engine.engine import Engine
from kvedu.engine.trace import Stepped
from kvedu.model.dtype import fast_dtype
from kvedu.model.sampling import distribution
from kvedu.model.transformer import Transformer
from kvedu.speculative import shipped
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.draws import Draws
from kvedu.speculative.eagle import Eagle
from kvedu.speculative.eagle_tree import EagleTree
from kvedu.speculative.first_layers import first_layers
from kvedu.speculative.lookahead import Lookahead
from kvedu.speculative.ngram import NGram
from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.quantized_twin import quantized_twin
from kvedu.speculative.rounds import Round
from kvedu.speculative.tree import TokenTree
from kvedu.texts import held_out, read

PLACES = 8192
"""Tokens that the engine's cache holds."""
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Rows of a pass that are timed."""
BATCHES = (1, 4, 8, 16, 32)
SWEPT = ("n-gram", "eagle")
"""Proposers whose batch is swept."""
SPARSE = 3
"""Of proposers that are not in ``WHOLE`` every third prompt is run, of slow ones (c > 1) every sixth."""
WHOLE = ("n-gram", "eagle")


def proposers(model: Transformer) -> dict[str, Callable[[], Proposer]]:
    """Every way of guessing, with its usual depth."""
    twin = quantized_twin(model)
    makers: dict[str, Callable[[], Proposer]] = {
        "n-gram": lambda: NGram(7),
        "lookahead": lambda: Lookahead(4, 3, 3),
        "first 15 layers": lambda: DraftModel(first_layers(model, 15), 2),
        "4-bit twin": lambda: DraftModel(twin, 2),
    }
    trained: dict[str, Callable[[], Proposer]] = {
        "eagle": lambda: shipped.eagle(model, 3),
        "eagle tree": lambda: tree_of(shipped.eagle(model, 3), model),
        "medusa": lambda: shipped.medusa(model),
        "mtp": lambda: shipped.mtp(model),
        "draft": lambda: shipped.draft(model, 3),
    }
    there = {path.stem for path in shipped.FOLDER.glob("*.safetensors")}
    return makers | {name: make for name, make in trained.items() if name.split()[0] in there}


def tree_of(eagle: Eagle, model: Transformer) -> EagleTree:
    """The same head, with siblings: 3 levels, the likeliest 2 at each, 6 nodes in all."""
    return EagleTree(eagle.head, eagle.reduced.vocabulary, model, depth=3, width=2, nodes=6)


class Timed(Proposer):
    """A proposer and the seconds of each round that it takes: to propose, to read features, to look at verdicts."""

    def __init__(self, inner: Proposer) -> None:
        self.inner, self.seconds, self.first, self.rounds = inner, 0.0, 0.0, 0
        self.deepest, self.whole = inner.deepest, inner.whole
        self.check, self.taps, self.release = inner.check, inner.taps, inner.release

    def _time(self, work: Callable[..., object], *given: object) -> object:
        start = time.perf_counter()
        done = work(*given)
        self.seconds += time.perf_counter() - start
        return done

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        self.rounds += 1
        before, trees = self.seconds, self._time(self.inner.propose, asks)
        self.first = self.first or self.seconds - before
        return trees

    def feed(self, *given: object) -> None:
        self._time(self.inner.feed, *given)

    def observe(self, *given: object) -> None:
        self._time(self.inner.observe, *given)


class Wrong(Proposer):
    """Guesses so many tokens that nobody says: a pass of known rows."""

    def __init__(self, k: int) -> None:
        self.k = k

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        return [TokenTree.chain([7] * min(self.k, ask.limit)) for ask in asks]


@dataclass
class Decoded:
    """Seconds of the decode steps, their tokens and rounds."""

    seconds: float
    tokens: int
    rounds: list[Round] = field(default_factory=list)

    @property
    def per_token(self) -> float:
        return self.seconds / self.tokens


def decode(model: Transformer, prompts: Sequence[str | list[int]], new: int, proposer: Proposer | None, sampling: Sampling = Sampling(), depths=None) -> Decoded:
    """Decode prompts together; only steps after the last prompt's pass count."""
    cache_bytes = PLACES * kv_bytes_per_token(model.config, model.dtype.itemsize)
    engine = Engine(model, cache_bytes=cache_bytes, speculate=proposer, depths=depths or Full(), token_budget=2048)
    numbers = [engine.add(prompt, max_new_tokens=new, sampling=sampling, ignore_eos=True) for prompt in prompts]
    engine.step()
    start = time.perf_counter()
    while not engine.idle:
        engine.step()
    seconds = time.perf_counter() - start
    return Decoded(seconds, len(prompts) * (new - 1), [r for n in numbers for r in engine.rounds(n)[0]])


def pass_seconds(model: Transformer, rows: Iterable[int], sampling: Sampling = Sampling(), context: int = 128, repeats: int = 5) -> dict[int, float]:
    """Median seconds of a step of the engine by its rows, all of one text; each size in turn, so often."""
    ids = model.tokenizer.encode(read("story"))[:context]
    cache_bytes = PLACES * kv_bytes_per_token(model.config, model.dtype.itemsize)
    seen: dict[int, list[float]] = {n: [] for n in rows}
    for _ in range(repeats):
        for n in seen:
            engine = Engine(model, cache_bytes=cache_bytes, speculate=Wrong(n - 1) if n > 1 else None, depths=Full())
            engine.add(ids, max_new_tokens=n + 3, sampling=sampling, ignore_eos=True)
            for _ in range(3):
                engine.step()
            last: list[Stepped] = engine.trace.of(Stepped)[-2:]
            seen[n] += [step.time - step.start for step in last]
    return {n: median(seconds) for n, seconds in seen.items()}


@dataclass(frozen=True)
class Drafting:
    """Seconds of a text's first draft, which may have to run the prompt, and of each later one."""

    first: float
    later: float

    def each(self, rounds: int) -> float:
        """Mean seconds over so many rounds."""
        return self.later + (self.first - self.later) / rounds


def draft_seconds(model: Transformer, make: Callable[[], Proposer], sampling: Sampling) -> Drafting:
    """Mean seconds of drafting over two frozen texts that are not held out."""
    firsts, timed, rounds = [], 0.0, 0
    for name in ("code", "prose"):
        proposer = Timed(make())
        prompt = model.tokenizer.encode(read(name))[400:500]
        decode(model, [prompt], 4, Timed(make()))
        decode(model, [prompt], 48, proposer, sampling)
        firsts.append(proposer.first)
        timed, rounds = timed + proposer.seconds - proposer.first, rounds + proposer.rounds - 1
    return Drafting(mean(firsts), timed / rounds)


def draw_seconds(model: Transformer, sampling: Sampling) -> tuple[float, float, float]:
    """What drawing adds to a plain step, to a round whose first guess is rejected, and to that for each guess that is kept."""
    if sampling.greedy:
        return 0.0, 0.0, 0.0
    greedy, drawn = pass_seconds(model, (1, 4)), pass_seconds(model, (1, 4), sampling)
    logits_V, draws, seconds = torch.randn(model.config.V, dtype=model.dtype), Draws(sampling), []
    for _ in range(20):
        start = time.perf_counter()
        draws.happens(float(distribution(logits_V, sampling, ())[0]))
        seconds.append(time.perf_counter() - start)
    return drawn[1] - greedy[1], drawn[4] - greedy[4], median(seconds)


def by_depth(rounds: Sequence[Round]) -> list[float]:
    """Share kept at each depth, of the rounds that reached it; depths that fewer than ten rounds reached are left out."""
    shares = []
    for place in range(1, max((r.depth for r in rounds), default=0) + 1):
        reached = [r.accepted >= place for r in rounds if r.depth >= place and r.accepted >= place - 1]
        if len(reached) < 10:
            break
        shares.append(mean(reached))
    return shares


@dataclass(frozen=True)
class Costs:
    """Seconds of a pass by its rows, of a draft by its proposer, and what ``draw_seconds`` says."""

    step: dict[int, float]
    draft: dict[str, Drafting]
    draw: tuple[float, float, float]

    @classmethod
    def now(cls, model: Transformer, makers: dict[str, Callable[[], Proposer]], temperature: float) -> Costs:
        """Measured now: a machine is not as fast all the time."""
        sampling = Sampling(temperature=temperature, seed=1)
        draft = {name: draft_seconds(model, make, sampling) for name, make in makers.items()}
        return cls(pass_seconds(model, [n for n in ROWS if n <= 32], repeats=3), draft, draw_seconds(model, sampling))

    def with_(self, other: Costs) -> Costs:
        """The mean of both."""
        draft = {name: Drafting(mean((one.first, other.draft[name].first)), mean((one.later, other.draft[name].later))) for name, one in self.draft.items()}
        step = {n: mean((seconds, other.step[n])) for n, seconds in self.step.items()}
        return Costs(step, draft, tuple(map(mean, zip(self.draw, other.draw))))


def measure(model: Transformer, makers: dict[str, Callable[[], Proposer]], every: int) -> dict[str, float]:
    """The held-out set by every proposer beside plain decoding; costs are measured before and after each group."""
    values: dict[str, float] = {}
    for group in held_out.groups():
        before = Costs.now(model, makers, group.temperature)
        plain: list[Decoded] = []
        found: dict[str, list[tuple[Decoded, Decoded]]] = {name: [] for name in makers}
        for i, prompt in enumerate(group.prompts[::every]):
            sampling = Sampling(temperature=group.temperature, seed=i)
            one = decode(model, [prompt], group.new_tokens, None, sampling)
            plain.append(one)
            for name, make in makers.items():
                nth = 1 if name in WHOLE else SPARSE if before.draft[name].later < before.step[1] else 2 * SPARSE
                if i % nth == 0:
                    found[name].append((one, decode(model, [prompt], group.new_tokens, make(), sampling)))
        costs = before.with_(Costs.now(model, makers, group.temperature))
        step, draft, (alone, rejected, kept) = costs.step, costs.draft, costs.draw
        verify = interpolate(step)
        values[f"{group.name}_plain_ms_per_token"] = 1e3 * median(d.per_token for d in plain)
        print(f"\n{group.name}: {len(plain)} prompts, plain {values[f'{group.name}_plain_ms_per_token']:.2f} ms a token, a pass of one row "
              f"{1e3 * before.step[1]:.2f} ms before, {2e3 * step[1] - 1e3 * before.step[1]:.2f} after", flush=True)
        print(f"    {'proposer':16s} prompts    τ      c   predicted  measured   acceptance by depth")
        for name, pairs in found.items():
            rounds = [r for _, d in pairs for r in d.rounds]
            tau = [d.tokens / len(d.rounds) for _, d in pairs]
            took = [draft[name].each(len(d.rounds)) + mean(verify(1 + r.guessed) + rejected + kept * r.accepted for r in d.rounds) for _, d in pairs]
            cost = [seconds / (step[1] + alone) - 1 for seconds in took]
            predicted, measured = median(map(speedup, tau, cost)), median(one.per_token / d.per_token for one, d in pairs)
            shares = by_depth(rounds)
            key = f"{group.name}_{name.replace(' ', '_').replace('-', '_')}"
            values |= {f"{key}_tau": median(tau), f"{key}_c": median(cost), f"{key}_predicted": predicted, f"{key}_speedup": measured,
                       f"{key}_prompts": len(pairs), f"{key}_acceptance": shares}
            print(f"    {name:16s} {len(pairs):4d}    {median(tau):5.2f}  {median(cost):5.2f}    {predicted:5.2f}     {measured:5.2f}    "
                  + " ".join(f"{share:.2f}" for share in shares), flush=True)
    return values


def sweep(model: Transformer, makers: dict[str, Callable[[], Proposer]], step: dict[int, float], draft: dict[str, Drafting]) -> dict[str, float]:
    """Code continuations in batches: tokens a second with guesses over without; where it falls below 1; what the engine's own choice gives."""
    values: dict[str, float] = {}
    verify = interpolate(step)
    prompts = [model.tokenizer.encode(p)[:64] for p in held_out.group("code").prompts]
    for name in (n for n in SWEPT if n in makers):
        key, gains, chosen = name.replace("-", "_"), {}, {}
        for batch in BATCHES:
            texts, new = [prompts[i % len(prompts)] for i in range(batch)], 48 if batch <= 8 else 24
            plain = decode(model, texts, new, None)
            full = decode(model, texts, new, makers[name]())
            own = decode(model, texts, new, makers[name](), depths=Measured())
            gains[batch], chosen[batch] = plain.per_token / full.per_token, plain.per_token / own.per_token
            if batch == 1:
                tau, guessed = full.tokens / len(full.rounds), mean(r.guessed for r in full.rounds)
        loses = next((batch for batch, gain in gains.items() if gain < 1), None)

        def cost(batch: int) -> float:
            return (draft[name].later + verify(round(batch * (1 + guessed)))) / verify(batch) - 1

        most = [batch for batch in BATCHES if batch * (1 + guessed) <= max(step)]
        foretold = break_even(tau, cost, most)
        print(f"\n{name} on code, batches {list(gains)}: {' '.join(f'{g:.2f}' for g in gains.values())}; loses from {loses}, foretold {foretold}; "
              f"as deep as it pays: {' '.join(f'{g:.2f}' for g in chosen.values())}", flush=True)
        values |= {f"{key}_batch_{b}_speedup": g for b, g in gains.items()} | {f"{key}_batch_{b}_chosen_speedup": g for b, g in chosen.items()}
        values |= {f"{key}_loses_from_batch": loses, f"{key}_loses_foretold": foretold}
    return values


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the row under bench/results")
    parser.add_argument("--only", nargs="+", help="proposers to measure")
    parser.add_argument("--quick", action="store_true", help="every fifth prompt, no batches")
    options = parser.parse_args(argv)
    dtype, why = fast_dtype("cpu")
    model = kvedu.load(dtype=dtype, device="cpu").pack()
    makers = {name: make for name, make in proposers(model).items() if not options.only or name in options.only}
    print(f"{dtype} ({why}), {torch.get_num_threads()} threads; held-out set {held_out.sha256()[:12]}; {', '.join(makers)}", flush=True)
    decode(model, ["def f(x):"], 8, NGram(3))  # nobody's first call counts
    rows = [n for n in ROWS if not options.quick or n <= 32]
    step = pass_seconds(model, rows)
    print("a pass takes " + ", ".join(f"{n} rows {1e3 * s:.1f} ms" for n, s in step.items()))
    draft = {name: draft_seconds(model, make, Sampling(seed=1)) for name, make in makers.items()}
    print("a greedy draft takes " + ", ".join(f"{name} {1e3 * d.later:.2f} ms" for name, d in draft.items()), flush=True)
    values: dict[str, object] = {"held_out_sha256": held_out.sha256(), "dtype": str(dtype).removeprefix("torch."), "threads": torch.get_num_threads()}
    values |= {"pass_rows": list(step), "pass_ms": [1e3 * s for s in step.values()]}
    values |= {f"{name.replace(' ', '_').replace('-', '_')}_draft_ms": 1e3 * d.later for name, d in draft.items()}
    values |= measure(model, makers, 5 if options.quick else 1)
    if not options.quick:
        values |= sweep(model, makers, step, draft)
    if options.save:
        save_row("speculative", values, command=" ".join(["python", "bench/bench_speculative.py", *argv]))


if __name__ == "__main__":
    main(sys.argv[1:])
