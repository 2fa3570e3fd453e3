"""A manifest as it was read, proven to be its record's: the one place between the reading and the first use of a byte."""

from __future__ import annotations

from lakemark.adapters.disk.digests import of_parts
from lakemark.errors import Corrupt, quoted
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import Record, require_own


def proven(record: Record, manifest: Manifest) -> Manifest:
    """`manifest`, if `record` is named after it and the parts of its files are those that their digests are made of.

    The id does not cover `parts`: whoever reads a file part by part would go by them alone. Raises Corrupt.
    """
    require_own(record, manifest)
    for file in manifest.regular:
        if file.parts and of_parts(file.size_bytes, file.parts).digest != file.digest:
            raise Corrupt(
                f"{quoted(file.path)} of {record.run}@{record.step}: the digests of its parts are not those of the file",
                advice="No byte was used. Take the checkpoint from a tier, a node or a ledger that has the right manifest.",
            )
    return manifest
