"""Lookahead: the target drafts for itself by Jacobi iteration, in the same passes that verify. No draft, no training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Hashable, Iterable, Sequence

from torch import Tensor

from kvedu.errors import RequestError
from kvedu.speculative.proposer import Ask, Proposer
from kvedu.speculative.tree import TokenTree


@dataclass
class _Text:
    """Window and pool of one text. ``levels[j][i]`` is column i's token at depth i + j + 1 below the text's end."""

    levels: list[list[int]]
    pool: dict[int, dict[tuple[int, ...], None]] = field(default_factory=dict)

    def columns(self) -> list[list[int]]:
        """Each column as a path below the text's end: level 0 up to it, then its own later levels."""
        first, later = self.levels[0], self.levels[1:]
        return [[*first[: i + 1], *(level[i] for level in later)] for i in range(len(first))]


class Lookahead(Proposer):
    """Guess n-grams that the target itself wrote while it looked ahead.

    Each pass carries a window of ``width`` columns and ``n`` - 1 levels: what the target made of a guessed future one
    to n - 1 passes ago. Its answers below the last level are the new level, the oldest level goes; each column is
    then an n-gram of the target's own making, kept in a pool by its first token. The latest ``guesses`` n-grams that
    begin with the text's last token are verified beside the window. Window and guesses are one token tree (a column
    hangs from level 0), and all of it counts as chosen guesses: what turns out right is kept, wherever it stood.

    Fu et al. 2024 (2402.02057). Cost: up to width · (n - 1) + guesses · (n - 1) more tokens in each pass of the target.
    Raises ``RequestError`` for a window without columns, n below 2, or less than no guesses.
    """

    whole = True

    def __init__(self, width: int = 5, n: int = 4, guesses: int = 5) -> None:
        if width < 1 or n < 2 or guesses < 0:
            raise RequestError(f"a window has 1 column or more, n is 2 or more, guesses 0 or more; got {width}, {n}, {guesses}")
        self.width, self.n, self.guesses, self.deepest = width, n, guesses, width + n - 2
        self._texts: dict[Hashable, _Text] = {}

    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        return [self._guess(ask) for ask in asks]

    def _guess(self, ask: Ask) -> TokenTree:
        if ask.key not in self._texts:  # a first future as good as any: the text's own last tokens again
            self._texts[ask.key] = _Text([[ask.ids[-1 - i % len(ask.ids)] for i in range(self.width)]])
        text = self._texts[ask.key]
        found = text.pool.get(ask.ids[-1], {})
        latest = list(found)[-self.guesses :][::-1] if self.guesses else []
        return trie([*latest, *text.columns()], ask.limit)

    def observe(self, key: Hashable, tree: TokenTree, logits_TV: Tensor) -> None:
        """Read the answers below the window's last level; the window moves on by one."""
        text = self._texts.get(key)
        if text is None:
            return
        columns = text.columns()
        nodes = [_find(tree, path) for path in columns]
        if None in nodes:
            return  # the tree was cut, near the end or for want of room: this future was not looked at
        new = logits_TV[[node + 1 for node in nodes]].argmax(dim=-1).tolist()
        if len(text.levels) == self.n - 1:
            for i, token in enumerate(new):
                first, *rest = (level[i] for level in text.levels)
                grams = text.pool.setdefault(first, {})
                gram = (*rest, token)
                grams.pop(gram, None)  # the latest stands last
                grams[gram] = None
                while len(grams) > max(self.guesses, 1):
                    del grams[next(iter(grams))]
            text.levels.pop(0)
        text.levels.append(new)

    def release(self, key: Hashable) -> None:
        self._texts.pop(key, None)


def trie(paths: Iterable[Sequence[int]], limit: int) -> TokenTree:
    """One tree of chosen tokens that has each path (down to depth ``limit``), common beginnings only once."""
    tokens: list[int] = []
    parents: list[int] = []
    child: dict[tuple[int, int], int] = {}
    for path in paths:
        node = -1
        for token in path[:limit]:
            if (node, token) not in child:
                child[node, token] = len(tokens)
                tokens.append(token)
                parents.append(node)
            node = child[node, token]
    return TokenTree(tuple(tokens), tuple(parents))


def _find(tree: TokenTree, path: Sequence[int]) -> int | None:
    """The node at the end of a path of tokens, or None."""
    node = -1
    for token in path:
        node = next((i for i in tree.children.get(node, []) if tree.tokens[i] == token), None)
        if node is None:
            return None
    return node
