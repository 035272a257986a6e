"""No table of scores that look like a broken protocol, until somebody has looked at them."""

from collections.abc import Sequence

from cluster_bench.record import Record


def refuse(records: Sequence[Record], confirmed: Sequence[str]) -> None:
    """Raise ValueError, with reasons and samples, for doubted scores of methods that are not `confirmed`."""
    doubtful = [record for record in records if record.doubts and record.method not in confirmed]
    if not doubtful:
        return
    said = [
        f"{record.method} {record.dataset} seed {record.seed}, " + "\n    ".join(lines)
        for record in doubtful
        for lines in record.doubts.values()
    ]
    names = ",".join(dict.fromkeys([*confirmed, *(record.method for record in doubtful)]))
    raise ValueError(
        "\n  ".join(["scores that look broken:", *said])
        + f"\nlook at the samples; where it is the model that is weak, confirm with confirmed=[{names}]"
    )
