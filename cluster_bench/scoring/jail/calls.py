"""System calls that no program needs and that reach past the other walls, answered with EPERM (seccomp)."""

import ctypes
import errno
import platform
import struct

NO_NEW_PRIVS, GET_SECCOMP, SET_SECCOMP, FILTER = 38, 21, 22, 2  # prctl
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NEW_NAMESPACES = 0x7E020000  # flags of clone
FAMILIES = (1, 2, 10)  # unix, IPv4, IPv6: what a network namespace holds; vsock, say, it does not
X32 = 0x40000000

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FORBIDDEN = {  # number on x86_64, on aarch64
    **{"unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51), "pivot_root": (155, 41)},
    **{"mount": (165, 40), "umount2": (166, 39), "mount_setattr": (442, 442), "open_tree": (428, 428)},
    **{"move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432), "fspick": (433, 433)},
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271)},
    **{"pidfd_getfd": (438, 438), "kcmp": (312, 272), "bpf": (321, 280), "perf_event_open": (298, 241)},
    **{"userfaultfd": (323, 282), "io_uring_setup": (425, 425), "keyctl": (250, 219)},
    **{"add_key": (248, 217), "request_key": (249, 218)},
    # memory that no limit counts, or that outlives its process:
    **{"memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "semget": (64, 190)},
    **{"msgget": (68, 186), "mq_open": (240, 180)},
}
CLONE, CLONE3, SOCKET = (56, 220), (435, 435), (41, 198)
_libc = ctypes.CDLL(None, use_errno=True)


def can_forbid() -> bool:
    """Whether this kernel filters calls, on a machine whose numbers are known."""
    return platform.machine() in MACHINES and _libc.prctl(GET_SECCOMP, 0, 0, 0, 0) >= 0


def forbid(names: tuple[str, ...] = tuple(FORBIDDEN)) -> bool:
    """From here on, for this process and all that it starts; whether it was permitted."""
    column = list(MACHINES).index(platform.machine())

    def step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
        return struct.pack("HBBI", code, then, otherwise, value)

    def refuse(error: int = errno.EPERM) -> bytes:
        return step(RETURN, ERROR | error)

    steps = [
        *(step(LOAD, ARCHITECTURE), step(EQUAL, MACHINES[platform.machine()], 1), refuse()),
        *(step(LOAD, NUMBER), step(AT_LEAST, X32, 0, 1), refuse()),
        *(part for name in names for part in (step(EQUAL, FORBIDDEN[name][column], 0, 1), refuse())),
        # clone3 hides its flags behind a pointer; without it the C library goes back to clone
        *(step(EQUAL, CLONE3[column], 0, 1), refuse(errno.ENOSYS)),
        *(step(EQUAL, CLONE[column], 0, 4), step(LOAD, FIRST_ARGUMENT)),
        *(step(ANY_BIT, NEW_NAMESPACES, 0, 1), refuse(), step(RETURN, ALLOW)),
        *(step(EQUAL, SOCKET[column], 0, len(FAMILIES) + 2), step(LOAD, FIRST_ARGUMENT)),
        *(step(EQUAL, family, len(FAMILIES) - n) for n, family in enumerate(FAMILIES)),
        *(refuse(), step(RETURN, ALLOW)),
    ]
    code = ctypes.create_string_buffer(b"".join(steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    permitted = _libc.prctl(NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0) == 0
    return permitted and _libc.prctl(SET_SECCOMP, ctypes.c_ulong(FILTER), program, 0, 0) == 0
