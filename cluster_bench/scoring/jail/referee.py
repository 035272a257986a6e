"""Who decides whether a program passes: two processes and a narrow channel between them.

The *player* holds the program and nothing else. The *referee* holds the tests. Where a test calls a function
of the program, the referee sends the arguments over the channel and gets a value back, as plain data rebuilt
from JSON. So the program never sees a test, an expected value or the referee's memory: it can end itself,
print what it likes, patch builtins or walk frames, and all it can still do is to answer with right values.

Some tests hand over what JSON cannot carry (a function, an instance of a class). They are run *together*
with the program, in the player; the verdict is then a nonce that the player gets only after the program's
definitions have run. A program that searches its own process for it could forge this one; the answer says
how it was judged (`"together": true`).
"""

import ast
import builtins
import importlib
import random
import secrets
import socket
import sys
import types
from collections.abc import Callable
from typing import Any, cast

from .carrying import CannotCarryError, Far, Opaque, pack, receive, send, unpack

SYNTAX = (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError)
MODULES = {  # what a test may use because the program imported it; the referee imports its own
    **{name: name for name in sys.stdlib_module_names},
    "np": "numpy",
    "numpy": "numpy",
}


def play(descriptor: int) -> None:
    """The player: define the program, then answer calls until the channel ends."""
    channel = socket.socket(fileno=descriptor)
    sys.set_int_max_str_digits(0)
    random.seed(0)
    program = types.ModuleType("program")
    sys.modules["program"] = program
    space = vars(program)
    try:
        code = compile(receive(channel)["program"], "<program>", "exec", dont_inherit=True)
    except SYNTAX as error:
        send(channel, {"stop": "syntax_error", "detail": f"{type(error).__name__}: {error}"[:300]})
        return
    try:
        exec(code, space)
    except BaseException as error:
        send(channel, {"stop": "wrong", "detail": f"{type(error).__name__}: {error}"[:300]})
        return
    send(channel, {"ready": True})
    while True:
        try:
            request = receive(channel)
        except EOFError:
            return
        send(channel, _answer(request, space))


def _answer(request: dict[str, Any], space: dict[str, Any]) -> dict[str, Any]:
    try:
        if "names" in request:
            return {"names": {name: _name(name, space[name]) for name in request["names"] if name in space}}
        if "tests" in request:
            exec(compile(request["tests"], "<tests>", "exec", dont_inherit=True), space)
            return {"nonce": request["nonce"]}
        function = space[request["call"]]
        value = function(*unpack(request["args"], space), **unpack(request["kwargs"], space))
        return {"value": _pack_or_hide(value)}
    except BaseException as error:
        return {"raised": [type(error).__name__, str(error)[:300]]}


def _pack_or_hide(value: Any) -> Any:
    try:
        return pack(value)
    except CannotCarryError:
        return {"opaque": type(value).__name__}


def _name(name: str, value: Any) -> Any:
    if isinstance(value, types.ModuleType):
        return {"module": value.__name__}
    return {"far": name} if callable(value) else _pack_or_hide(value)


def serve(line: socket.socket) -> None:
    """The referee: for each program a channel to its player, then the request; the answer goes back."""
    while True:
        mark, descriptors, _, _ = socket.recv_fds(line, 1, 1)
        if not mark or not descriptors:
            return
        with socket.socket(fileno=descriptors[0]) as channel:
            send(line, judge(channel, receive(line)))


def judge(channel: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one program: verdict, detail and whether the tests ran together with the program."""
    sys.set_int_max_str_digits(0)
    together = request["together"]
    try:
        send(channel, {"program": request["program"]})
        first = receive(channel)
        if "stop" in first:
            verdict = "syntax_error" if first["stop"] == "syntax_error" else "wrong"
            return {"verdict": verdict, "detail": str(first.get("detail", ""))[:300], "together": together}
        detail = (_judge_together if together else _judge_apart)(channel, request)
    except CannotCarryError as error:
        return {"verdict": "again", "detail": f"a test hands over a {error}", "together": together}
    except (EOFError, OSError, RecursionError, MemoryError, KeyError, TypeError, ValueError) as error:
        return {
            "verdict": "crashed",
            "detail": f"{type(error).__name__}: {error}"[:300],
            "together": together,
        }
    return {"verdict": "wrong" if detail else "passed", "detail": detail, "together": together}


def _judge_together(channel: socket.socket, request: dict[str, Any]) -> str:
    nonce = secrets.token_hex(16)
    send(channel, {"tests": request["tests"], "nonce": nonce})
    reply = receive(channel)
    if reply.get("nonce") == nonce:
        return ""
    return ": ".join(str(part) for part in reply.get("raised", ["no verdict"]))[:300]


def _judge_apart(channel: socket.socket, request: dict[str, Any]) -> str:
    gone: list[Exception] = []  # a test may swallow what is raised, not this

    def ask(message: dict[str, Any]) -> dict[str, Any]:
        try:
            send(channel, message)
            return receive(channel)
        except (EOFError, OSError) as error:
            gone.append(error)
            raise

    space: dict[str, Any] = {"__name__": "tests"}
    names = _free_names(request["tests"], set(request["defines"]))
    for name, value in ask({"names": names})["names"].items():
        space[name] = _near(name, value, ask)
    try:
        exec(compile(request["tests"], "<tests>", "exec", dont_inherit=True), space)
    except CannotCarryError:
        raise
    except BaseException as error:
        if not gone:
            return f"{type(error).__name__}: {error}"[:300]
    if gone:
        raise gone[0]
    return ""


def _near(name: str, value: Any, ask: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A name of the program as the tests see it."""
    if isinstance(value, dict) and "far" in value:
        return Far(name, ask)
    if isinstance(value, dict) and "module" in value:
        module = str(cast("dict[str, Any]", value)["module"])
        return importlib.import_module(module) if MODULES.get(name) == module else Opaque(module)
    return unpack(value, {})


def _free_names(tests: str, defines: set[str]) -> list[str]:
    """Names that the tests read and do not bind; a builtin only if the program is there to define it."""
    read: set[str] = set()
    bound: set[str] = set(dir(builtins)) - defines
    for node in ast.walk(ast.parse(tests)):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
    return sorted(read - bound)
