"""The pure part of the broker touches time, chance, files, threads and processes through `odradek.ports` only.

Ruff's banned-api rule (TID251 in pyproject.toml) says the same of imports; this test also sees builtins and loop
timers, and does not depend on which rules are switched off by a comment.
"""

import ast

from tests.unit.house.sources import package_sources

PURE = (
    "api/",
    "broker/",
    "controller/",
    "groups/",
    "kraft/",
    "log/",
    "metadata/",
    "records/",
    "replication/",
    "transactions/",
    "wire/",
)
BANNED_MODULES = {
    "concurrent", "fcntl", "mmap", "multiprocessing", "os", "pathlib", "random", "secrets", "select", "selectors",
    "shutil", "socket", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip
BANNED_CALLS = {
    "open", "input", "print",
    "datetime.now", "datetime.utcnow", "datetime.today",
    "datetime.datetime.now", "datetime.datetime.utcnow", "date.today",
    "uuid.uuid1", "uuid.uuid4", "uuid1", "uuid4",
    "loop.time", "loop.run_in_executor",
}  # fmt: skip
# The one place of each exception, and why.
ALLOWED = {
    ("wire/generate.py", "*"): "a developer's tool that writes the committed codecs",
    ("wire/definitions.py", "pathlib"): "reads the schema tables for that tool and for the JSON form of dump-log",
}


def allowed(module: str, name: str) -> bool:
    return (module, "*") in ALLOWED or (module, name) in ALLOWED


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def offences(name: str, tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            used = [alias.name for alias in node.names if alias.name.split(".")[0] in BANNED_MODULES]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            used = [module] if module.split(".")[0] in BANNED_MODULES else []
            used += [f"{module}.{a.name}" for a in node.names if f"{module}.{a.name}" in BANNED_CALLS]
        elif isinstance(node, ast.Call):
            used = [dotted(node.func)] if dotted(node.func) in BANNED_CALLS else []
        else:
            continue
        found += [f"{name}:{node.lineno} {what}" for what in used if not allowed(name, what)]
    return found


def test_pure_packages_use_the_ports() -> None:
    found = [o for s in package_sources() if s.name.startswith(PURE) for o in offences(s.name, s.tree)]
    assert not found, "\n".join(found)


def test_the_ban_bites() -> None:
    code = "import os\nfrom time import monotonic\nimport asyncio\nasync def f(): await asyncio.sleep(1)\nopen('x')\n"
    assert [o.split()[-1] for o in sorted(offences("log/x.py", ast.parse(code)))] == [
        "os",
        "time",
        "open",
    ]
