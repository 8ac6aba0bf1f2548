# %% right: line by line
def through_codes(page_CD, bits, per):
    lines = page_CD if per == "token" else page_CD.T
    out = torch.stack([from_codes(*to_codes(line.contiguous(), bits)) for line in lines])
    return out if per == "token" else out.T.contiguous()


# %% right: a scale of one where there is no range
def through_codes(page_CD, bits, per):
    dim = {"token": 1, "channel": 0}[per]
    low = page_CD.min(dim=dim, keepdim=True).values
    step = (page_CD.max(dim=dim, keepdim=True).values - low) / (2**bits - 1)
    step = step.masked_fill(step == 0, 1.0)
    return ((page_CD - low) / step).round() * step + low


# %% wrong: rows and columns confused
# says: have changed places
def through_codes(page_CD, bits, per):
    dim = 0 if per == "token" else 1
    low = page_CD.amin(dim, keepdim=True)
    step = (page_CD.amax(dim, keepdim=True) - low) / (2**bits - 1)
    step = torch.where(step == 0, 1.0, step)
    return ((page_CD - low) / step).round() * step + low


# %% wrong: one scale for all
# says: the whole page shares one scale
def through_codes(page_CD, bits, per):
    low = page_CD.min()
    step = (page_CD.max() - low) / (2**bits - 1)
    return ((page_CD - low) / step).round() * step + low


# %% wrong: symmetric
# says: there is no zero point
def through_codes(page_CD, bits, per):
    dim = 1 if per == "token" else 0
    step = page_CD.abs().amax(dim, keepdim=True) / (2 ** (bits - 1) - 1)
    step = torch.where(step == 0, 1.0, step)
    return (page_CD / step).round() * step


# %% wrong: one zero point for all
# says: all share the page's lowest number
def through_codes(page_CD, bits, per):
    dim = 1 if per == "token" else 0
    low = page_CD.min()
    step = (page_CD.amax(dim, keepdim=True) - low) / (2**bits - 1)
    return torch.where(step == 0, low, ((page_CD - low) / torch.where(step == 0, 1.0, step)).round() * step + low)
