"""Zstandard frames as its own library writes them, at two levels; cut and damaged ones."""

import base64
import io

import pytest

from lakemark.formats.readers import zstd

TEXT = "".join(f"params.layer_{i}.kernel/.zarray params.layer_{i}.kernel/{i % 7}.0 " for i in range(40)).encode()
FRAMES = {
    "level 3": "KLUv/WD8B4UGAMLHFRWgJ21nIttvR5mo6nB3d+9MkdEDiDgEja0m/m7//Tp9NdFn822Xybdrqs80Yt2RGf7nqvJuqVImIt6dmf23XVU0R"
    "BykFHIYgFEQSiEYCpTiIMYYBqSQQnmogdlt/zfAo1YOEZxSUlAEjKNIJpY9Q3D7uklDXh+oC+gF54P5wfxgbvs5Q2L7WoVCiFHCLCGXkOWFTMmiRKUhFg"
    "IgLAJALARA0Or7a0j/KFzs0Ub6GNI1ColtNCjCbb/tq32bb9ttX+3bKLynWJHuoxoeUgU=",
    "level 19": "KLUv/WD8B7UFABIHFBGwOwcbLsoGgx1tSkoq9DWQB6Uw2aGf/u3cy7rJWpL88G/nXtZN/VwvTXjsq2c/+7ayblGS49+9m3lXNUMCeJw7"
    "MQiFmEMppHEIHhXeOu60dqhR8dr/DTC3ZDkRvEKAELDBGPPtmYCDS1wT6TpPROqYSi8TKgTuNFCJayq9TKhwnScidUylwDOAynGfiNQxlV4mVLjOj32L2N"
    "KoyNjAE3pDnyAbeEOfICto7l2UTVY1kLsK",
}  # fmt: skip
RAW = zstd.MAGIC + b"\x00\x58" + (1 | 5 << 3).to_bytes(3, "little") + b"hello"
REPEATED = zstd.MAGIC + b"\x00\x58" + (1 | 1 << 1 | 70_000 << 3).to_bytes(3, "little") + b"z"


@pytest.mark.parametrize("name", FRAMES)
def test_compressed(name):
    frame = base64.b64decode(FRAMES[name])
    assert zstd.decompress(frame, limit_bytes=len(TEXT)) == TEXT
    with pytest.raises(zstd.ZstdDamaged):
        zstd.decompress(frame, limit_bytes=len(TEXT) - 1)
    assert zstd.length(io.BytesIO(frame), len(frame)) == len(frame)


def test_raw_and_repeated_blocks():
    assert zstd.decompress(RAW, limit_bytes=100) == b"hello"
    assert zstd.decompress(REPEATED, limit_bytes=100_000) == b"z" * 70_000
    with pytest.raises(zstd.ZstdDamaged, match="more than 100 bytes"):
        zstd.decompress(REPEATED, limit_bytes=100)


@pytest.mark.parametrize("name", FRAMES)
def test_cut_or_damaged_anywhere_it_says_so_or_answers(name):
    frame = base64.b64decode(FRAMES[name])
    for at in range(len(frame)):
        with pytest.raises(zstd.ZstdDamaged):
            zstd.decompress(frame[:at], limit_bytes=10_000)
        assert zstd.length(io.BytesIO(frame[:at]), at) is None
        for bit in (1, 64):
            try:
                found = zstd.decompress(frame[:at] + bytes([frame[at] ^ bit]) + frame[at + 1 :], limit_bytes=10_000)
            except zstd.ZstdDamaged:
                continue
            assert len(found) <= 10_000
