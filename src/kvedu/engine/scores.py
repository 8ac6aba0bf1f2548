"""Log-probabilities of a prompt's own tokens, as the prompt is computed."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.engine.sequence import Sequence
from kvedu.kernels.transfer import put
from kvedu.model.sampling import logprob_numbers, reported
from kvedu.model.transformer import Transformer

AT_ONCE = 256
"""Rows whose logits are held together: those of a whole step would take more memory than all else in it."""


def score(model: Transformer, sequence: Sequence, hidden_TM: Tensor) -> None:
    """Add those of its next T tokens; the host waits once for every ``AT_ONCE``. What was added stays right if a later one fails."""
    request = sequence.run.request
    for part_TM in hidden_TM.split(AT_ONCE) if len(hidden_TM) else ():
        first = len(sequence.scores)
        tokens_T = put(sequence.ids[first : first + len(part_TM)], part_TM.device)
        rows = zip(model.logits(part_TM), tokens_T)
        numbers_TX = torch.stack([logprob_numbers(logits_V, token, request.prompt_logprobs) for logits_V, token in rows])
        sequence.scores += [reported(numbers_X) for numbers_X in numbers_TX.tolist()]
    if len(sequence.scores) == len(request.prompt_ids):
        sequence.run.prompt_logprobs = tuple(sequence.scores)
