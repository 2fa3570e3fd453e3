"""What a trainer announced, as its node reads it."""

import json
from pathlib import Path

from lakemark.adapters.node.run_files import spooled, write_run_file
from lakemark.ports import RunFile
from lakemark.trainer import Run


def opened(home, *, resume=None, timeline=1):
    """The run `r`, as `lakemark run open` would have left it in `home`."""
    run_file = RunFile(run="r", timeline=timeline, attempt="t1", spool=home / "spool/r", data=(), resume=resume)
    write_run_file(home / "runs/r.json", run_file)
    return Run.open("r", environ={"LAKEMARK_HOME": str(home)})


def announced(run):
    """In order of step. The reader must take every file the trainer left."""
    found = list(spooled(Path(run._spool)))
    assert not (Path(run._spool) / "rejected").exists()
    return found


def resumable(path, *, step):
    return json.loads(json.dumps({"path": str(path), "step": step, "record": "b" * 64, "timeline": 2}))
