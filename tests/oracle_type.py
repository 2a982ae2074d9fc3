"""Writes what PyPI's ml_dtypes and numpy say about element types, for test_type.c. One line a fact:

    decode TYPE CODE NUMBER     the number of every code
    encode TYPE NUMBER CODE     the code of numbers on, and just beside, the midpoints between two neighbours

Numbers are hexadecimal floats, "inf" or "nan". Exit status 3: ml_dtypes or numpy is not installed.
"""
import sys

try:
    import ml_dtypes
    import numpy as np
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(3)

TYPES = {  # our name: their name and its bits, which are the low ones of the byte that numpy stores
    "e4m3": ("float8_e4m3fn", 8), "e5m2": ("float8_e5m2", 8), "e8m0": ("float8_e8m0fnu", 8),
    "e3m2": ("float6_e3m2fn", 6), "e2m3": ("float6_e2m3fn", 6), "e2m1": ("float4_e2m1fn", 4),
    "i4": ("int4", 4), "u4": ("uint4", 4), "i2": ("int2", 2), "u2": ("uint2", 2),
    "bf16": ("bfloat16", 16), "f16": ("float16", 16),
}


def main():
    out = []
    for ours, (theirs, bits) in TYPES.items():
        dtype = np.dtype(np.float16 if theirs == "float16" else getattr(ml_dtypes, theirs))
        storage = np.uint16 if bits == 16 else np.uint8
        codes = np.arange(1 << bits).astype(storage)
        values = codes.view(dtype).astype(np.float64)
        out += [f"decode {ours} {c} {float(v).hex()}" for c, v in zip(codes, values)]
        if ours[0] in "iu":
            continue  # ml_dtypes casts to integers by truncation: nothing to compare
        # All of it is exact in float32, from which every one of these types is reached with a single rounding.
        numbers = np.unique(values[np.isfinite(values)])
        middles = ((numbers[:-1] + numbers[1:]) / 2).astype(np.float32)
        probes = np.concatenate([middles, np.nextafter(middles, np.float32(np.inf)),
                                 np.nextafter(middles, np.float32(-np.inf)), numbers.astype(np.float32)])
        probes = probes[probes != 0]
        if ours == "e8m0":  # ml_dtypes 0.6 takes all that lies between 2^-127 and 2^-126 to the latter
            probes = probes[(probes >= 2.0**-126) | (probes == 2.0**-127)]
        encoded = probes.astype(dtype).view(storage).astype(int) & ((1 << bits) - 1)
        out += [f"encode {ours} {float(v).hex()} {c}" for v, c in zip(probes, encoded)]
    print("\n".join(out))


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        main()
