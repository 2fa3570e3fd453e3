"""The acceptance pipeline of dvc.yaml, on a site of its own with real services."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_dvc_repro_accepts_a_site(tmp_path, require_command):
    for name in ("dvc.yaml", "configs/acceptance.yaml", ".dvc/config", ".dvc/.gitignore"):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, target)
    programs = str(Path(sys.executable).parent)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LAKEMARK_", "LAKEFS_"))}
    environment |= {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "DVC_NO_ANALYTICS": "1",
        "DVC_SITE_CACHE_DIR": str(tmp_path / "dvc"),
    }

    def run(*words):
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    run("git", "init", "-q", ".")
    run("lakemark", "init", ".", "--profile", "laptop")
    config = tmp_path / "lakemark.yaml"
    config.write_text(config.read_text().replace("  prefect: server\n", ""))
    run("lakemark", "up")
    try:
        run("dvc", "repro")
        metrics = json.loads((tmp_path / "acceptance" / "metrics.json").read_text())
        assert (metrics["records"], metrics["restored_bytes_equal"], metrics["data_branches_right"]) == (6, True, True)
        assert (tmp_path / "acceptance" / "loss.csv").read_text().count("\n") == 7
        assert "didn't change" in run("dvc", "repro")
        assert "restored_seconds" in run("dvc", "metrics", "show")
    finally:
        run("lakemark", "down")
