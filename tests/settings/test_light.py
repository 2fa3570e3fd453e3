"""Every command loads this: nothing heavy may come with it."""

import subprocess
import sys

HEAVY = {"boto3", "cyclopts", "dvc", "fastapi", "lakefs_client", "prefect", "pyarrow", "pydantic", "pygit2", "rich"}


def test_loading_settings_loads_no_vendor_but_yaml():
    code = f"import sys, lakemark.settings; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
