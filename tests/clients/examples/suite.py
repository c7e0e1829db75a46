"""Runs the commands of each section of examples/README.md, and compares their output with that of the page."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDERS = {path.parent.name for path in (ROOT / "examples").glob("*/*") if path.is_file()}
# The first run downloads and builds.
PATIENCE_S = 900


def sections():
    """Title, commands and output of each example."""
    page = (ROOT / "examples/README.md").read_text()
    for section in page.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        commands, output = re.search(r"```sh\n(.*?)```\n\n```text\n(.*?)```", section, re.S).groups()
        yield title, commands, output


def run(title, commands, expected):
    """Whether the last command prints what is expected. The others prepare it, and fetch from networks."""
    folder, *preparation, program = commands.strip().splitlines()
    folder = ROOT / folder.removeprefix("cd ")
    FOLDERS.discard(folder.name)
    retry = str(ROOT / "scripts/retry.sh")
    for command in preparation:
        # Suites that run at the same time share the repository of Maven.
        lock = ["flock", str(ROOT / "tests/.deps/maven")] if command.startswith("mvn") else []
        subprocess.run([retry, *lock, "bash", "-c", command], cwd=folder, check=True, timeout=PATIENCE_S)
    ran = subprocess.run(["bash", "-c", program], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)
    if ran.returncode == 0 and ran.stdout == expected:
        print(f"ok {title}")
        return True
    print(f"FAILED {title}: exit {ran.returncode}\n{ran.stdout}{ran.stderr}expected:\n{expected}")
    return False


results = [run(*section) for section in sections()]
if FOLDERS:
    print(f"FAILED not in examples/README.md: {FOLDERS}")
    results.append(False)
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(0 if all(results) else 1)
