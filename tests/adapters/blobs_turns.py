"""Blobs whose requests come in a drawn order, and what goes wrong with them. Who asks is a process of its own."""

import threading

from lakemark.adapters.disk.objects import Names
from lakemark.errors import StoreUnavailable
from tests.adapters.blobs_stepped import MemoryBlobs


class Killed(BaseException):
    """Nothing catches it: what runs then is what would run after kill -9, which is nothing of ours."""


class Actor:
    """killed_at: number of the request that it does not live to make. failing: that are not made. lost: whose answer is.

    short: which share of its listings breaks off.
    """

    def __init__(self, turns, random, *, faults):
        self.random = random
        self.turns = turns
        self.asked, self.dead, self.ended = 0, False, False
        self.killed_at = random.randint(1, 60) if random.random() < faults else None
        self.failing, self.lost = (
            {random.randint(1, 80) for _ in range(2)} if random.random() < faults else () for _ in "fl"
        )
        self.short = 0.15 if random.random() < faults / 2 else 0

    def ask(self, call):
        """Waits for its turn, and gives it back."""
        with self.turns.guard:
            self.turns.guard.wait_for(lambda: self.turns.whose is self)
            try:
                return self._answer(call)
            finally:
                self.turns.over()

    def _answer(self, call):
        self.asked += 1
        self.dead = self.dead or self.asked == self.killed_at
        if self.dead:
            raise Killed
        answer = None if self.asked in self.failing else call()
        if self.asked in {*self.failing, *self.lost}:
            raise StoreUnavailable("no answer", advice="Try again.")
        return answer


class Turns:
    """Who asks next is drawn again and again. sticky: the probability that it is who asked last."""

    def __init__(self, random, *, sticky):
        self._random, self._sticky = random, sticky
        self.guard = threading.Condition()
        self.whose = None
        self._errors = []

    def over(self):
        self.whose = None
        self.guard.notify_all()

    def run(self, works):
        """Actors beside each other, each with its work; what one of them raised is raised."""
        threads = [threading.Thread(target=self._work, args=one, daemon=True) for one in works.items()]
        for thread in threads:
            thread.start()
        last = None
        with self.guard:
            while living := [actor for actor in works if not actor.ended]:
                stays = last in living and self._random.random() < self._sticky
                self.whose = last = last if stays else self._random.choice(living)
                self.guard.notify_all()
                self.guard.wait_for(lambda: self.whose is None)
        for thread in threads:
            thread.join()
        for error in self._errors:
            raise error

    def _work(self, actor, work):
        try:
            work(actor)
        except Killed:
            pass
        except Exception as error:  # noqa: BLE001 - raised by `run`
            self._errors.append(error)
        with self.guard:
            actor.ended = True
            if self.whose is actor:
                self.over()


class TurnedBlobs(MemoryBlobs):
    """`Blobs` of one actor. Anybody may come between any two of its requests, and stop it there for as long as he waits."""

    def __init__(self, held, actor):
        super().__init__(held)
        self._actor = actor

    def patience(self, hours):
        return hours.patience(lambda seconds: self._actor.ask(lambda: hours.sleep(seconds)))

    def get(self, key):
        return self._actor.ask(lambda: super(TurnedBlobs, self).get(key))

    def size(self, key):
        return self._actor.ask(lambda: super(TurnedBlobs, self).size(key))

    def create(self, key, data):
        return self._actor.ask(lambda: super(TurnedBlobs, self).create(key, data))

    def replace(self, key, data):
        return self._actor.ask(lambda: super(TurnedBlobs, self).replace(key, data))

    def write(self, key, stream, size_bytes, *, overwrite):
        return self._actor.ask(lambda: super(TurnedBlobs, self).write(key, stream, size_bytes, overwrite=overwrite))

    def open(self, key, *, start=0, length=None):
        return self._actor.ask(lambda: super(TurnedBlobs, self).open(key, start=start, length=length))

    def delete(self, key, *, unless_late=None):
        self._actor.ask(lambda: super(TurnedBlobs, self).delete(key, unless_late=unless_late))

    def list(self, prefix, *, limit=None):
        names = self._actor.ask(lambda: Names.of(super(TurnedBlobs, self).each(prefix), limit=limit))
        if not self._breaks_off():
            return names
        return Names({key: names.sizes[key] for key in list(names.sizes)[::2]}, complete=False)

    def each(self, prefix):
        found = self._actor.ask(lambda: list(super(TurnedBlobs, self).each(prefix)))
        breaks_off = self._breaks_off()
        yield from found[: len(found) // 2 if breaks_off else None]
        if breaks_off:
            raise StoreUnavailable("it breaks off", advice="Try again.")

    def _breaks_off(self):
        return self._actor.random.random() < self._actor.short
