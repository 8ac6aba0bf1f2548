# %% right: a mask
def spoiler(page_CD, bits):
    D, errors = page_CD.shape[1], []
    for d in range(D):
        rest = page_CD[:, torch.arange(D) != d]
        errors.append((through_codes(rest, bits, "token") - rest).pow(2).sum())
    return int(torch.stack(errors).argmin())


# %% right: whose absence gains most
def spoiler(page_CD, bits):
    def error(page):
        return float((through_codes(page, bits, "token") - page).square().sum())

    best, gain = 0, -float("inf")
    for d in range(page_CD.shape[1]):
        saved = error(page_CD) - error(torch.cat((page_CD[:, :d], page_CD[:, d + 1 :]), dim=1))
        if saved > gain:
            best, gain = d, saved
    return best


# %% wrong: the largest number
# says: the channel of the largest number is taken
def spoiler(page_CD, bits):
    return int(page_CD.abs().max(dim=0).values.argmax())


# %% wrong: the largest variance
# says: the channel that varies most is taken
def spoiler(page_CD, bits):
    return int(page_CD.std(dim=0).argmax())


# %% wrong: its own error
# says: ask instead what the others lose by it
def spoiler(page_CD, bits):
    return int((through_codes(page_CD, bits, "token") - page_CD).square().sum(0).argmax())


# %% wrong: set to zero
# says: is set to zero instead of taken out
def spoiler(page_CD, bits):
    errors = []
    for d in range(page_CD.shape[1]):
        page = page_CD.clone()
        page[:, d] = 0
        errors.append(float((through_codes(page, bits, "token") - page).square().sum()))
    return errors.index(min(errors))


# %% wrong: the largest error
# says: look for the smallest error
def spoiler(page_CD, bits):
    errors = []
    for d in range(page_CD.shape[1]):
        rest = torch.cat((page_CD[:, :d], page_CD[:, d + 1 :]), dim=1)
        errors.append(float((through_codes(rest, bits, "token") - rest).square().sum()))
    return errors.index(max(errors))
