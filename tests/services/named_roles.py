"""A recogniser for tests: the roles of a save are the names of its files, its framework is what its folder begins with."""

from dataclasses import replace

from tests.support.memory import MemoryRecogniser

ROLES = ("weights", "optimizer", "scheduler", "rng", "dataloader", "trainer", "config")


class NamedRoles(MemoryRecogniser):
    def judge(self, path):
        found = super().judge(path)
        files = [file.path for file in self.files.regular(path)]
        roles = {name: stem for name in files if (stem := name.split(".")[0].split("-")[0]) in ROLES}
        possible = tuple(role for role in ROLES if f"maybe-{role}" in files)
        return replace(found, framework=path.name.split("-")[0], roles=roles, possible=possible)

    def __init__(self, world):
        super().__init__(world.disk)
        self.files = world.files
