"""What passes between a program and its tests: values as JSON, over a socket, and nothing else."""

import builtins
import collections
import collections.abc
import decimal
import fractions
import importlib
import itertools
import json
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, cast

LARGEST = 2**24  # bytes of one message
LONGEST = 10**6  # items taken from an iterator
MAKERS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
    "iter": iter,
    "values": lambda items: cast("dict[int, Any]", dict(enumerate(items))).values(),
    "range": lambda bounds: range(*bounds),
    "complex": lambda parts: complex(*parts),
    "bytes": bytes,
    "bytearray": bytearray,
    "Fraction": lambda parts: fractions.Fraction(*parts),
    "Decimal": lambda parts: decimal.Decimal(*parts),
}


class CannotCarryError(Exception):
    """A value that is not plain data."""


def pack(value: Any, lend: Callable[[Any], Any]) -> Any:
    """Plain data as JSON: scalars as they are, all else `{kind: content}`; `lend` gives that of the rest."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, collections.abc.Mapping):
        pairs = cast("collections.abc.Mapping[Any, Any]", value).items()
        return {"dict": [[pack(k, lend), pack(v, lend)] for k, v in pairs]}
    kind, items = _parts(value)
    if kind:
        return {kind: [pack(item, lend) for item in items]}
    if isinstance(value, type) and vars(builtins).get(value.__name__) is value:
        return {"type": value.__name__}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        plain = pack(value.tolist(), lend)
        return {"ndarray": plain} if hasattr(value, "__len__") else plain
    return lend(value)


def _parts(value: Any) -> tuple[str, Any]:
    """The kind of a collection or number, and what it is made of; "" where it is neither."""
    for kind in (list, tuple, frozenset, collections.deque, bytes, bytearray):
        if isinstance(value, kind):
            return kind.__name__, cast("Any", value)
    if isinstance(value, collections.abc.Set):
        return "set", value
    if isinstance(value, collections.abc.ValuesView):
        return "values", value
    if isinstance(value, complex):
        return "complex", [value.real, value.imag]
    if isinstance(value, range):
        return "range", [value.start, value.stop, value.step]
    if isinstance(value, fractions.Fraction):
        return "Fraction", [value.numerator, value.denominator]
    if isinstance(value, decimal.Decimal):
        return "Decimal", [str(value)]
    if isinstance(value, collections.abc.Iterator):
        return "iter", list(itertools.islice(cast("Iterator[Any]", value), LONGEST))
    return "", ()


def unpack(value: Any, find: Callable[[str, Any], Any]) -> Any:
    """The inverse of `pack`; `find` gives what was lent, from kind and content."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = cast("dict[str, Any]", value).items()
    if kind == "dict":
        return {unpack(k, find): unpack(v, find) for k, v in content}
    if kind == "ndarray":
        return importlib.import_module("numpy").array(unpack(content, find))
    if kind == "type" and isinstance(made := getattr(builtins, content), type):
        return made
    if kind in MAKERS:
        return MAKERS[kind]([unpack(item, find) for item in content])
    return find(kind, content)


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
