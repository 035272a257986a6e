"""From what a model says to a program that can be run.

A response may be a whole function, a body that goes on from the signature, or either inside a Markdown fence,
with prose and special tokens around it. Nothing is repaired: indentation of a body is made relative to its
signature, all else is left as generated.
"""

import re
from collections.abc import Sequence

from cluster_bench.scoring.benchmarks import Item

FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.MULTILINE)
TOP = re.compile(
    r"(async\s+def|def|class)\s+\w+|(import|from)\s+[\w.]+(\s+import\b.*|\s+as\b.*|\s*,.*|\s*)$|@\w|#|\w+\s*=[^=]"
)
STAYS = re.compile(
    r"[)\]}#@]|(async\s+def|def|class|if|elif|for|while|with|try|else|except|finally)\b.*:|assert\b|\w[\w.]*(\(|\[|\s*[-+*/|&]?=)|(import|from)\s+[\w.]+"
)
STATEMENT = re.compile(
    r"(return|if|for|while|with|try|raise|yield|assert|pass|global|nonlocal|del)\b"
    r"|[\w.\[\], ]+\s*[-+*/%|&^]?=|\w[\w.]*\(|\"\"\"|'''"
)


def program(raw: str, item: Item, special: Sequence[str] = ()) -> str | None:
    """The program in a response, ready to be tested; None where there is nothing like one."""
    if item.goes_on:
        return item.signature + raw if raw.strip() else None
    text = _unfenced(_ended(raw.replace("\r\n", "\n"), special), item.entry)
    whole = _from_first_definition(text)
    body = _body(text) if item.signature else None
    if whole is not None and (body is None or re.search(rf"def\s+{item.entry}\b", whole)):
        return item.preamble + whole
    return None if body is None else item.signature.rstrip() + "\n" + body


def _ended(text: str, special: Sequence[str]) -> str:
    """The text up to the first special token that closes it; those that open it are dropped."""
    for token in special:
        while token and text.lstrip().startswith(token):
            text = text.lstrip()[len(token) :]
    ends = [text.find(token) for token in special if token and token in text]
    return text[: min(ends)] if ends else text


def _unfenced(text: str, entry: str) -> str:
    """The inside of the first fence that defines the entry point, else of the first fence with code in it."""
    marks = [(mark.start(), mark.end()) for mark in FENCE.finditer(text)]
    if not marks:
        return text
    before = text[: marks[0][0]]
    if len(marks) == 1 and (re.search(r"^\s*(def|class)\s", before, re.MULTILINE) or _body(before)):
        return before  # only the closing one
    edges = [*marks, (len(text), len(text))]
    blocks = [text[edges[i][1] + 1 : edges[i + 1][0]] for i in range(0, len(edges) - 1, 2)]
    blocks = [block for block in blocks if block.strip()]
    defining = [block for block in blocks if re.search(rf"def\s+{entry or r'[A-Za-z_]'}", block)]
    return (defining or blocks or [""])[0]


def _from_first_definition(text: str) -> str | None:
    """Whole lines from the first top-level definition or import to the first top-level line of prose."""
    lines = text.split("\n")
    depth = min(
        (len(line) - len(line.lstrip()) for line in lines if re.match(r"\s*(def|class)\s", line)), default=0
    )
    first = next((n for n, line in enumerate(lines) if re.match(r"\s*(def|class)\s", line)), None)
    if first is None:
        return None
    lines = [line[depth:] if not line[:depth].strip() else line for line in lines]
    start = first
    while start and (not lines[start - 1].strip() or TOP.match(lines[start - 1])):
        start -= 1
    kept: list[str] = []
    for n, line in enumerate(lines[start:], start):
        if n > first and line.strip() and not line[0].isspace() and not STAYS.match(line):
            break
        kept.append(line)
    return "\n".join(kept).rstrip() + "\n"


def _body(text: str) -> str | None:
    """A body under a signature: indented if it is not, up to the first line that falls out of it."""
    lines = text.strip("\n").rstrip().split("\n")
    first = lines[0].strip()
    inside = lines[0][:1].isspace() and re.match(r"(def|class|#|@)", first)
    if not (inside or STATEMENT.match(first)):
        return None
    if not lines[0][0].isspace():
        inner = next((line for line in lines[1:] if line.strip()), "")
        lost = inner[:1].isspace() and not lines[0].rstrip().endswith(
            ":"
        )  # the first indentation was cut away
        lines = ["    " + line if n == 0 or not lost else line for n, line in enumerate(lines)]
    kept: list[str] = []
    for line in lines:
        if line.strip() and not line[0].isspace() and not STAYS.match(line):
            break
        kept.append(line)
    return "\n".join(kept) + "\n"
