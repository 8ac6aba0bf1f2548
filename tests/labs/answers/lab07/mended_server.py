# %% right: the last of those who run
class MendedServer(Server):
    def victim(self):
        return self.running[-1]

    def send_back(self, job):
        job.computed = 0
        self.waiting = [job, *self.waiting]


# %% right: by number, in both places
class MendedServer(Server):
    def victim(self):
        return sorted(self.running, key=lambda job: -job.number)[0]

    def send_back(self, job):
        job.computed = 0
        self.waiting.append(job)
        self.waiting.sort(key=lambda job: job.number)


# %% wrong: as it was
# says: nothing is mended
class MendedServer(Server):
    pass


# %% wrong: to the end of the line
# says: waits behind newcomers
class MendedServer(Server):
    def victim(self):
        return self.running[-1]

    def send_back(self, job):
        job.computed = 0
        self.waiting.append(job)


# %% wrong: to the end of the line, by number
# says: as long as they come, it starves
class MendedServer(Server):
    def victim(self):
        return max(self.running, key=lambda job: job.number)

    def send_back(self, job):
        job.computed = 0
        self.waiting.append(job)


# %% wrong: the first, to the front
# says: the first to come is still the one
class MendedServer(Server):
    def victim(self):
        return self.running[0]

    def send_back(self, job):
        job.computed = 0
        self.waiting.insert(0, job)


# %% wrong: the largest
# says: holds most
class MendedServer(Server):
    def victim(self):
        return max(self.running, key=lambda job: job.computed)

    def send_back(self, job):
        job.computed = 0
        self.waiting.insert(0, job)


# %% wrong: computed stays
# says: still counted as computed
class MendedServer(Server):
    def victim(self):
        return self.running[-1]

    def send_back(self, job):
        self.waiting.insert(0, job)


# %% wrong: from the beginning
# says: gets them twice
class MendedServer(Server):
    def victim(self):
        return self.running[-1]

    def send_back(self, job):
        job.computed = job.made = 0
        self.waiting.insert(0, job)


# %% wrong: the shortest
# says: the result is not the right one
class MendedServer(Server):
    def victim(self):
        return min(self.running, key=lambda job: job.computed)

    def send_back(self, job):
        job.computed = 0
        self.waiting.append(job)
