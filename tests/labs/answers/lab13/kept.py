# %% right: head by head
def kept(scores_SK, budget, sinks, recent):
    S, K = scores_SK.shape
    columns = []
    for k in range(K):
        always = set(range(min(sinks, S))) | set(range(max(0, S - recent), S))
        rest = sorted((i for i in range(S) if i not in always), key=lambda i: -float(scores_SK[i, k]))
        columns.append(torch.tensor(sorted([*always, *rest[: max(0, budget - len(always))]])))
    return torch.stack(columns, dim=1)


# %% right: by a mask
def kept(scores_SK, budget, sinks, recent):
    S = len(scores_SK)
    rows = torch.arange(S)[:, None]
    protected = (rows < sinks) | (rows >= S - recent)
    ranked = torch.where(protected, float("inf"), scores_SK).argsort(dim=0, descending=True)
    return ranked[: min(budget, S)].sort(dim=0)[0]


# %% wrong: first and last compete
# says: they compete
def kept(scores_SK, budget, sinks, recent):
    return scores_SK.topk(min(budget, len(scores_SK)), dim=0).indices.sort(dim=0).values


# %% wrong: protected ones on top
# says: here they come on top
def kept(scores_SK, budget, sinks, recent):
    S = len(scores_SK)
    scores = scores_SK.clone()
    scores[:sinks] = scores[max(0, S - recent) :] = float("inf")
    return scores.topk(min(budget + sinks + recent, S), dim=0).indices.sort(dim=0).values


# %% wrong: not sorted
# says: in the order of their scores
def kept(scores_SK, budget, sinks, recent):
    S = len(scores_SK)
    scores = scores_SK.clone()
    scores[:sinks] = scores[max(0, S - recent) :] = float("inf")
    return scores.topk(min(budget, S), dim=0).indices


# %% wrong: all heads the same
# says: each KV head chooses for itself
def kept(scores_SK, budget, sinks, recent):
    S = len(scores_SK)
    scores = scores_SK.mean(dim=1, keepdim=True).repeat(1, scores_SK.shape[1])
    scores[:sinks] = scores[max(0, S - recent) :] = float("inf")
    return scores.topk(min(budget, S), dim=0).indices.sort(dim=0).values


# %% wrong: smallest
# says: the lowest scores are kept
def kept(scores_SK, budget, sinks, recent):
    S = len(scores_SK)
    scores = scores_SK.clone()
    scores[:sinks] = scores[max(0, S - recent) :] = -float("inf")
    return scores.topk(min(budget, S), dim=0, largest=False).indices.sort(dim=0).values
