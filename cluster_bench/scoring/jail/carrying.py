"""What passes between a program and its tests: values as JSON, over a socket, and nothing else."""

import builtins
import collections
import collections.abc
import importlib
import itertools
import json
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, cast

LARGEST = 2**24  # bytes of one message
LONGEST = 10**6  # items taken from an iterator


class CannotCarryError(Exception):
    """A test's argument that is not plain data."""


class Opaque:
    """A value of the program that is not plain data: equal to nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


class Far:
    """A function of the program, called over the channel."""

    def __init__(self, name: str, ask: "Callable[[dict[str, Any]], dict[str, Any]]") -> None:
        self.name, self.ask = name, ask

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        reply = self.ask({"call": self.name, "args": pack(args), "kwargs": pack(kwargs)})
        if "raised" in reply:
            raise _exception(*reply["raised"])
        return unpack(reply["value"], {})


def _exception(name: str, text: str) -> Exception:
    kind = getattr(builtins, str(name), None)
    if (
        isinstance(kind, type)
        and issubclass(kind, Exception)
        and kind not in (UnicodeDecodeError, UnicodeEncodeError)
    ):
        return kind(text)
    return RuntimeError(f"{name}: {text}")


def pack(value: Any) -> Any:
    """Plain data as JSON: scalars as they are, everything else `{kind: content}`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, collections.abc.Mapping):
        pairs = cast("collections.abc.Mapping[Any, Any]", value).items()
        return {"dict": [[pack(k), pack(v)] for k, v in pairs]}
    for kind in (list, tuple, frozenset, collections.deque):
        if isinstance(value, kind):
            return {kind.__name__: [pack(item) for item in cast("list[Any]", value)]}
    if isinstance(value, collections.abc.Set):
        return {"set": [pack(item) for item in cast("set[Any]", value)]}
    if isinstance(value, bytes | bytearray):
        return {type(value).__name__: list(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, Far):
        return {"far": value.name}
    if type(value).__module__ == "numpy":
        return {"ndarray": pack(value.tolist())} if hasattr(value, "__len__") else pack(value.item())
    if isinstance(value, collections.abc.Iterator):
        items = list(itertools.islice(cast("Iterator[Any]", value), LONGEST))
        return {"iter": [pack(item) for item in items]}
    raise CannotCarryError(type(value).__name__)


def unpack(value: Any, space: dict[str, Any]) -> Any:
    """The inverse of `pack`; functions of the program are looked up in `space`."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = cast("dict[str, Any]", value).items()
    if kind == "dict":
        return {unpack(k, space): unpack(v, space) for k, v in content}
    if kind == "range":
        return range(*content)
    if kind == "complex":
        return complex(*content)
    if kind in ("bytes", "bytearray"):
        return getattr(builtins, kind)(content)
    if kind == "far":
        return space[content]
    if kind == "opaque":
        return Opaque(str(content))
    if kind == "ndarray":
        return importlib.import_module("numpy").array(unpack(content, space))
    makers: dict[str, Callable[[Any], Any]] = {
        "list": list,
        "tuple": tuple,
        "set": set,
        "frozenset": frozenset,
        "deque": collections.deque,
        "iter": iter,
    }
    return makers[kind]([unpack(item, space) for item in content])


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """One message: its size, then JSON."""
    body = json.dumps(message).encode()
    channel.sendall(struct.pack("<I", len(body)) + body)


def receive(channel: socket.socket) -> dict[str, Any]:
    """The next message. EOFError where the other end is gone or does not keep to the form."""
    (size,) = struct.unpack("<I", _exactly(channel, 4))
    if size > LARGEST:
        raise EOFError(f"a message of {size} bytes")
    message = json.loads(_exactly(channel, size))
    if not isinstance(message, dict):
        raise EOFError("not a message")
    return cast("dict[str, Any]", message)


def _exactly(channel: socket.socket, size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        piece = channel.recv(min(size, 1 << 16))
        if not piece:
            raise EOFError("the program ended itself")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
