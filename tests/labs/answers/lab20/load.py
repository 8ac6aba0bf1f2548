# %% right: whole tensors at a time
def load(buffers, rows, C, spare):
    B, J = buffers["tables"].shape
    rows = list(rows) + [(0, 0, [spare])] * (B - len(rows))
    tokens, places, tables = zip(*rows)
    buffers["ids"].copy_(torch.tensor(tokens))
    buffers["positions"].copy_(torch.tensor(places))
    buffers["lengths"].copy_(torch.tensor(places) + 1)
    buffers["slots"].copy_(torch.tensor([pages[t // C] * C + t % C for t, pages in zip(places, tables)]))
    buffers["tables"].copy_(torch.tensor([pages + [0] * (J - len(pages)) for pages in tables]))


# %% right: idle rows first, then the others over them
def load(buffers, rows, C, spare):
    for name in ("ids", "positions", "tables"):
        buffers[name].zero_()
    buffers["slots"].fill_(spare * C)
    buffers["lengths"].fill_(1)
    buffers["tables"][:, 0] = spare
    for b, (token, t, pages) in enumerate(rows):
        buffers["ids"][b], buffers["positions"][b], buffers["lengths"][b] = token, t, t + 1
        buffers["slots"][b] = pages[t // C] * C + t % C
        buffers["tables"][b, : len(pages)] = torch.tensor(pages)


# %% wrong: new tensors
# says: new tensors are put into the dictionary
def load(buffers, rows, C, spare):
    B, J = buffers["tables"].shape
    rows = list(rows) + [(0, 0, [spare])] * (B - len(rows))
    tokens, places, tables = zip(*rows)
    buffers["ids"] = torch.tensor(tokens)
    buffers["positions"] = torch.tensor(places)
    buffers["lengths"] = torch.tensor(places) + 1
    buffers["slots"] = torch.tensor([pages[t // C] * C + t % C for t, pages in zip(places, tables)])
    buffers["tables"] = torch.tensor([pages + [0] * (J - len(pages)) for pages in tables])


# %% wrong: only the rows that are needed
# says: rows that nobody needs keep what an earlier step left there
def load(buffers, rows, C, spare):
    J = buffers["tables"].shape[1]
    for b, (token, t, pages) in enumerate(rows):
        buffers["ids"][b], buffers["positions"][b], buffers["lengths"][b] = token, t, t + 1
        buffers["slots"][b] = pages[t // C] * C + t % C
        buffers["tables"][b] = torch.tensor(pages + [0] * (J - len(pages)))


# %% wrong: zeros for idle rows
# says: idle rows stand on page 0
def load(buffers, rows, C, spare):
    for name in ("ids", "positions", "slots", "tables"):
        buffers[name].zero_()
    buffers["lengths"].fill_(1)
    for b, (token, t, pages) in enumerate(rows):
        buffers["ids"][b], buffers["positions"][b], buffers["lengths"][b] = token, t, t + 1
        buffers["slots"][b] = pages[t // C] * C + t % C
        buffers["tables"][b, : len(pages)] = torch.tensor(pages)


# %% wrong: pages side by side
# says: a slot is counted from the first page on
def load(buffers, rows, C, spare):
    B, J = buffers["tables"].shape
    rows = list(rows) + [(0, 0, [spare])] * (B - len(rows))
    for b, (token, t, pages) in enumerate(rows):
        buffers["ids"][b], buffers["positions"][b], buffers["lengths"][b] = token, t, t + 1
        buffers["slots"][b] = pages[0] * C + t
        buffers["tables"][b] = torch.tensor(pages + [0] * (J - len(pages)))


# %% wrong: old pages behind a short table
# says: behind a shorter table stand the pages of the one before
def load(buffers, rows, C, spare):
    B = len(buffers["ids"])
    rows = list(rows) + [(0, 0, [spare])] * (B - len(rows))
    for b, (token, t, pages) in enumerate(rows):
        buffers["ids"][b], buffers["positions"][b], buffers["lengths"][b] = token, t, t + 1
        buffers["slots"][b] = pages[t // C] * C + t % C
        buffers["tables"][b, : len(pages)] = torch.tensor(pages)


# %% wrong: lengths without the new token
# says: lengths count the new token too
def load(buffers, rows, C, spare):
    B, J = buffers["tables"].shape
    rows = list(rows) + [(0, 0, [spare])] * (B - len(rows))
    for b, (token, t, pages) in enumerate(rows):
        buffers["ids"][b], buffers["positions"][b], buffers["lengths"][b] = token, t, t
        buffers["slots"][b] = pages[t // C] * C + t % C
        buffers["tables"][b] = torch.tensor(pages + [0] * (J - len(pages)))


# %% wrong: other numbers behind the same tensor
# says: ids is the same tensor, but its numbers lie at another address
def load(buffers, rows, C, spare):
    B, J = buffers["tables"].shape
    rows = list(rows) + [(0, 0, [spare])] * (B - len(rows))
    for b, (token, t, pages) in enumerate(rows):
        buffers["ids"][b], buffers["positions"][b], buffers["lengths"][b] = token, t, t + 1
        buffers["slots"][b] = pages[t // C] * C + t % C
        buffers["tables"][b] = torch.tensor(pages + [0] * (J - len(pages)))
    buffers["ids"].data = torch.tensor([token for token, _, _ in rows])


# %% wrong: another storage
# says: tables is the same tensor, but
def load(buffers, rows, C, spare):
    B, J = buffers["tables"].shape
    rows = list(rows) + [(0, 0, [spare])] * (B - len(rows))
    for b, (token, t, pages) in enumerate(rows):
        buffers["ids"][b], buffers["positions"][b], buffers["lengths"][b] = token, t, t + 1
        buffers["slots"][b] = pages[t // C] * C + t % C
        buffers["tables"][b] = torch.tensor(pages + [0] * (J - len(pages)))
    buffers["tables"].set_(buffers["tables"].clone())


# %% wrong: the caller's rows made longer
# says: your code changes something that it was given
def load(buffers, rows, C, spare):
    B, J = buffers["tables"].shape
    rows += [(0, 0, [spare])] * (B - len(rows))
    for b, (token, t, pages) in enumerate(rows):
        buffers["ids"][b], buffers["positions"][b], buffers["lengths"][b] = token, t, t + 1
        buffers["slots"][b] = pages[t // C] * C + t % C
        buffers["tables"][b] = torch.tensor(pages + [0] * (J - len(pages)))
