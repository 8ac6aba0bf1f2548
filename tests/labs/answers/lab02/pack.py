# %% right: first fit as they come
def pack(tokens, token_bytes, gpu_bytes):
    gpus, free = [], []
    for i, n in enumerate(tokens):
        for g in range(len(gpus)):
            if free[g] >= n * token_bytes:
                gpus[g].append(i)
                free[g] -= n * token_bytes
                break
        else:
            gpus.append([i])
            free.append(gpu_bytes - n * token_bytes)
    return gpus


# %% right: best fit, the longest first
def pack(tokens, token_bytes, gpu_bytes):
    gpus = []
    for i in sorted(range(len(tokens)), key=lambda i: -tokens[i]):
        fitting = [g for g in gpus if g["free"] >= tokens[i] * token_bytes]
        if fitting:
            best = min(fitting, key=lambda g: g["free"])
        else:
            best = {"free": gpu_bytes, "who": []}
            gpus.append(best)
        best["who"].append(i)
        best["free"] -= tokens[i] * token_bytes
    return [g["who"] for g in gpus]


# %% wrong: tokens against bytes
# says: mind what one token takes
def pack(tokens, token_bytes, gpu_bytes):
    gpus = []
    for i, n in enumerate(tokens):
        for gpu in gpus:
            if sum(tokens[j] for j in gpu) + n <= gpu_bytes:
                gpu.append(i)
                break
        else:
            gpus.append([i])
    return gpus


# %% wrong: looks at the last GPU only
# says: look for room on every GPU that is there
def pack(tokens, token_bytes, gpu_bytes):
    gpus = []
    for i, n in enumerate(tokens):
        if gpus and token_bytes * (sum(tokens[j] for j in gpus[-1]) + n) <= gpu_bytes:
            gpus[-1].append(i)
        else:
            gpus.append([i])
    return gpus


# %% wrong: the last GPU is lost
# says: is the last GPU kept?
def pack(tokens, token_bytes, gpu_bytes):
    gpus, now = [], []
    for i, n in enumerate(tokens):
        if now and token_bytes * (sum(tokens[j] for j in now) + n) > gpu_bytes:
            gpus.append(now)
            now = []
        now.append(i)
    return gpus


# %% wrong: lengths instead of places
# says: not lengths
def pack(tokens, token_bytes, gpu_bytes):
    gpus = []
    for n in tokens:
        for gpu in gpus:
            if token_bytes * (sum(gpu) + n) <= gpu_bytes:
                gpu.append(n)
                break
        else:
            gpus.append([n])
    return gpus


# %% wrong: put on every GPU with room
# says: is on more than one GPU
def pack(tokens, token_bytes, gpu_bytes):
    gpus = []
    for i, n in enumerate(tokens):
        fits = [gpu for gpu in gpus if token_bytes * (sum(tokens[j] for j in gpu) + n) <= gpu_bytes]
        for gpu in fits:
            gpu.append(i)
        if not fits:
            gpus.append([i])
    return gpus
