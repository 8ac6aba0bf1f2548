# %% right: how many there should be
class MendedTail(Tail):
    def append(self, x_TD):
        self.tail = torch.cat((self.tail, x_TD))
        go = max(0, len(self.tail) - self.residual) // self.group
        for _ in range(go):
            self.coded.append(self.tail[: self.group])
            self.tail = self.tail[self.group :]


# %% right: token by token
class MendedTail(Tail):
    def append(self, x_TD):
        for x_1D in x_TD.split(1):
            self.tail = torch.cat((self.tail, x_1D))
            if len(self.tail) == self.residual + self.group:
                self.coded.append(self.tail[: self.group].clone())
                self.tail = self.tail[self.group :].clone()


# %% wrong: as it was
# says: decided by the size of the call
class MendedTail(Tail):
    def append(self, x_TD):
        super().append(x_TD)


# %% wrong: no residual
# says: the last `residual` ones must stay exact
class MendedTail(Tail):
    def append(self, x_TD):
        self.tail = torch.cat((self.tail, x_TD))
        while len(self.tail) >= self.group:
            self.coded.append(self.tail[: self.group])
            self.tail = self.tail[self.group :]


# %% wrong: one group a call
# says: go on while there are groups
class MendedTail(Tail):
    def append(self, x_TD):
        self.tail = torch.cat((self.tail, x_TD))
        if len(self.tail) >= self.residual + self.group:
            self.coded.append(self.tail[: self.group])
            self.tail = self.tail[self.group :]


# %% wrong: one too late
# says: one token too late
class MendedTail(Tail):
    def append(self, x_TD):
        self.tail = torch.cat((self.tail, x_TD))
        while len(self.tail) > self.residual + self.group:
            self.coded.append(self.tail[: self.group])
            self.tail = self.tail[self.group :]


# %% wrong: the newest
# says: it is the other way round
class MendedTail(Tail):
    def append(self, x_TD):
        self.tail = torch.cat((self.tail, x_TD))
        while len(self.tail) >= self.residual + self.group:
            self.coded.append(self.tail[-self.group :])
            self.tail = self.tail[: -self.group]


# %% wrong: groups of any size
# says: holds whole groups
class MendedTail(Tail):
    def append(self, x_TD):
        self.tail = torch.cat((self.tail, x_TD))
        go = len(self.tail) - self.residual
        if go > 0:
            self.coded.append(self.tail[:go])
            self.tail = self.tail[go:]
