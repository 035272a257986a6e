"""The two ends of the channel: what is not plain data stays where it is and is used from afar."""

import builtins
import socket
import types
from typing import Any

from .carrying import CannotCarryError, pack, receive, send, unpack


class Far:
    """Something of the other end: called, asked for attributes and given some; equal to itself alone."""

    def __init__(self, number: int, peer: "Peer") -> None:
        vars(self).update(_number=number, _peer=peer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._peer.ask(self._number, "call", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python and numpy look up by themselves
            raise AttributeError(name)
        return self._peer.ask(self._number, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.ask(self._number, "set", name, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Far) and vars(other)["_number"] == self._number

    __hash__ = None  # type: ignore[assignment]


class Module:
    """A module that the other end has imported; of no use but to be imported here."""

    def __init__(self, name: str) -> None:
        self.name = name


class Peer:
    """One end. An `open` one lends whatever it has, attributes and all: the program's. The tests' end lends
    only functions, only to be called."""

    def __init__(self, channel: socket.socket, lent: list[Any], is_open: bool) -> None:
        self._channel, self._lent, self._open = channel, lent, is_open
        self.broken: Exception | None = None  # the other end is gone, or something cannot be carried to it

    def ask(self, number: int, action: str, *details: Any) -> Any:
        """What the other end answers, or raises, when told to use the thing with this number."""
        packed = [pack(detail, self._lend) for detail in details]
        try:
            send(self._channel, {"of": number, action: packed})
            while "of" in (reply := receive(self._channel)):  # it calls back before it answers
                send(self._channel, self._answer(reply))
        except (EOFError, OSError) as error:
            self.broken = error
            raise
        if "raised" in reply:
            raise _exception(*reply["raised"])
        return unpack(reply["value"], self._find)

    def serve(self) -> None:
        """Answer until the channel ends."""
        while True:
            try:
                request = receive(self._channel)
            except EOFError:
                return
            send(self._channel, self._answer(request))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            thing, value = self._lent[request["of"]], None
            if "call" in request:
                args, kwargs = (unpack(part, self._find) for part in request["call"])
                value = thing(*args, **kwargs)
            elif not self._open:
                raise PermissionError("a test's function is only to be called")
            elif "get" in request:
                value = getattr(thing, *request["get"])
            else:
                name, packed = request["set"]
                setattr(thing, name, unpack(packed, self._find))
            return {"value": pack(value, self._lend)}
        except BaseException as error:
            return {"raised": [type(error).__name__, str(error)[:300]]}

    def _lend(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Far):
            return {"yours": vars(value)["_number"]}
        if self._open and isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        if not self._open and not isinstance(value, types.FunctionType | types.BuiltinFunctionType):
            self.broken = CannotCarryError(type(value).__name__)
            raise self.broken
        number = next((n for n, lent in enumerate(self._lent) if lent is value), len(self._lent))
        if number == len(self._lent):
            self._lent.append(value)
        return {"mine": number}

    def _find(self, kind: str, content: Any) -> Any:
        if kind == "yours":
            return self._lent[content]
        if kind == "module":
            return Module(str(content))
        if kind == "mine":
            return Far(int(content), self)
        raise KeyError(kind)


def _exception(name: str, text: str) -> Exception:
    kind = getattr(builtins, str(name), None)
    special = (UnicodeError, BaseExceptionGroup)  # made from more than a text
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, special):
        return kind(text)
    return RuntimeError(f"{name}: {text}")
