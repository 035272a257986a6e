"""The GPUs that are modelled, and the one that is here.

Peaks are those of NVIDIA's data sheets for the SXM modules (A100 80GB: 312 TFLOP/s bf16 dense, 19.5 float32,
2,039 GB/s, NVLink 600 GB/s both ways; H100: 989, 67, 3,350, 900; H200: as H100 with 4,800 GB/s and 141 GB).
`efficiency` is fitted, see there.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

GIB = 2.0**30


@dataclass(frozen=True)
class Device:
    """One GPU of a node whose GPUs are joined by NVLink."""

    name: str
    bfloat16: float  # FLOP/s, dense
    float32: float  # FLOP/s, without tensor cores: what torch uses unless told otherwise
    bandwidth: float  # of its memory, bytes/s
    link: float  # NVLink to the other GPUs, bytes/s in each direction
    memory: float  # bytes
    efficiency: float  # share of the bfloat16 peak that the matrix products of a well-tuned loop reach


# Fitted to the 7B rows of llm-foundry's tables of 8 GPUs, and to nothing else; test_cost.py repeats the fit.
# For H200 no published bfloat16 row was found: its efficiency is H100's, whose chip it is.
A100, H100 = 0.65, 0.47
DEVICES: Mapping[str, Device] = {
    "a100": Device("A100", 312e12, 19.5e12, 2.039e12, 300e9, 80 * GIB, A100),
    "h100": Device("H100", 989e12, 67e12, 3.35e12, 450e9, 80 * GIB, H100),
    "h200": Device("H200", 989e12, 67e12, 4.8e12, 450e9, 141 * GIB, H100),
}


@cache
def detect() -> Device | None:
    """The first GPU of this machine, if it is one of those above, with the memory that it has."""
    asked = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return told(said)


def told(said: str) -> Device | None:
    """The device that nvidia-smi's first line names.

    >>> told("NVIDIA A100-SXM4-40GB, 40960\\n").memory / GIB
    40.0
    """
    model, _, mebibytes = said.partition("\n")[0].rpartition(",")
    known = [device for name, device in DEVICES.items() if name in model.lower()]
    return replace(known[0], memory=2.0**20 * int(mebibytes)) if known else None
