"""User programs, and those of docs/CLIENT.md, under mypy --strict: lines marked `# E: [code]` fail, no others."""

import re
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "typed_programs"
ROOT = Path(__file__).resolve().parents[3]


def test_user_programs_type_check_as_marked(tmp_path: Path) -> None:
    guide = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "CLIENT.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(guide) >= 10
    for number, code in enumerate(guide):
        (tmp_path / f"guide_{number}.py").write_text(code)
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\n[mypy-pyarrow.*]\nignore_missing_imports = true\n")  # it has no types
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    command += [f"--config-file={config}"]
    command += ["--follow-imports=silent", "--cache-dir", str(ROOT / ".mypy_cache" / "user_programs")]
    done = subprocess.run(
        [*command, str(PROGRAMS), str(tmp_path)],
        cwd=ROOT,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    found = set()
    for line in done.stdout.splitlines():
        match = re.match(r"(.*?):(\d+): error: (.*?)\s+(\[[a-z-]+\])$", line)
        assert match is not None or ": note: " in line, line
        if match is not None:
            found.add((Path(match[1]).name, int(match[2]), match[4]))
    marked = {
        (path.name, number, mark[1])
        for path in PROGRAMS.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (mark := re.search(r"# E: (\[[a-z-]+\])", line))
    }
    assert done.stderr == ""
    assert sorted(found) == sorted(marked), done.stdout
    assert len(marked) > 10
