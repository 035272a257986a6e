"""Who decides whether a program passes: two processes and a narrow channel between them.

The *player* holds the program and nothing else. The *referee* holds the tests. Where a test calls a function
of the program, the referee sends the arguments over the channel and gets a value back, as plain data rebuilt
from JSON; what is not plain data stays in the player and is used from afar (peers.py). So the program never
sees a test, an expected value or the referee's memory: it can end itself, print what it likes, patch builtins
or walk frames, and all it can still do is to answer with right values.

Arguments are copies: a test cannot see that a program changed one in place.
"""

import ast
import builtins
import importlib
import random
import socket
import sys
import types
from typing import Any

from .carrying import CannotCarryError, receive, send
from .peers import Far, Module, Peer

SYNTAX = (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError)
DIGITS = 10**5  # of the largest int: reading more takes seconds
MODULES = {  # what a test may use because the program imported it; the referee imports its own
    **{name: name for name in sys.stdlib_module_names},
    "np": "numpy",
    "numpy": "numpy",
}
Answer = dict[str, Any]


def play(descriptor: int) -> None:
    """The player: define the program, then answer until the channel ends."""
    channel = socket.socket(fileno=descriptor)
    sys.set_int_max_str_digits(DIGITS)
    random.seed(0)
    program = types.ModuleType("program")
    sys.modules["program"] = program
    try:
        code = compile(receive(channel)["program"], "<program>", "exec", dont_inherit=True)
    except SYNTAX as error:
        send(channel, {"stop": "syntax_error", "detail": _said(error)})
        return
    try:
        exec(code, vars(program))
    except BaseException as error:
        send(channel, {"stop": "wrong", "detail": _said(error)})
        return
    send(channel, {"ready": True})
    Peer(channel, [program], is_open=True).serve()


def serve(line: socket.socket) -> None:
    """The referee: for each program the channel to its player, and the paper that has the request on it and
    gets the answer; the line learns no more than that it is written."""
    while True:
        mark, descriptors, _, _ = socket.recv_fds(line, 1, 2)
        if not mark or len(descriptors) < 2:
            return
        channel, paper = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        with channel, paper:
            send(paper, judge(channel, receive(paper)))
        line.sendall(mark)


def judge(channel: socket.socket, request: dict[str, Any]) -> Answer:
    """Verdict and detail on one program; `refused` where its tests cannot be run."""
    sys.set_int_max_str_digits(DIGITS)
    random.seed(0)
    try:
        names = _free_names(request["tests"], set(request["defines"]))
    except SYNTAX as error:
        return {"verdict": "refused", "detail": f"tests that do not parse: {error}"}
    if names is None:
        return {"verdict": "refused", "detail": "no tests: any program would pass"}
    try:
        send(channel, {"program": request["program"]})
        first = receive(channel)
        if "stop" in first:
            verdict = "syntax_error" if first["stop"] == "syntax_error" else "wrong"
            return {"verdict": verdict, "detail": str(first.get("detail", ""))[:300]}
        detail = _run_tests(Peer(channel, [], is_open=False), names, request)
    except CannotCarryError as error:
        return {"verdict": "refused", "detail": f"tests that hand over a {error}"}
    except Exception as error:  # the player is gone, or says what none of ours would
        return {"verdict": "crashed", "detail": _said(error)}
    return {"verdict": "wrong" if detail else "passed", "detail": detail}


def _run_tests(peer: Peer, names: list[str], request: dict[str, Any]) -> str:
    """What was raised, "" for nothing. A test may swallow that, but not that the channel is broken."""
    space: dict[str, Any] = {"__name__": "tests"}
    try:
        for name in names:
            try:
                value = getattr(Far(0, peer), name)
            except AttributeError:
                continue
            if name not in MODULES or name in request["defines"]:
                space[name] = value
            elif isinstance(value, Module) and value.name == MODULES[name]:
                space[name] = importlib.import_module(value.name)
        exec(compile(request["tests"], "<tests>", "exec", dont_inherit=True), space)
        detail = ""
    except BaseException as error:
        detail = _said(error)
    if peer.broken:
        raise peer.broken
    return detail


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def _free_names(tests: str, defines: set[str]) -> list[str] | None:
    """Names that the tests read and do not bind; a builtin only if the program is there to define it. None
    where there is not one statement."""
    read: set[str] = set()
    bound: set[str] = set(dir(builtins)) - defines
    tree = ast.parse(tests)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
    return sorted(name for name in read - bound if not name.startswith("__")) if tree.body else None
