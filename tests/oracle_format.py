"""What PyPI's gguf makes of blocks of its quantisations, and what Python makes of random format declarations, for
test_format.c.

    oracle_format.py library|random FILE

writes records to FILE, each: name of the format, its declaration ("" for one of the library), count of blocks, the blocks,
the elements as f32. Strings have a 32-bit length in front; everything is little-endian. Exit status 3: a package is missing.
"""
import random
import struct
import sys

try:
    import gguf
    import numpy as np
    from gguf.quants import dequantize, quantize
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(3)


def write(out, name, declaration, count, blocks, values):
    for s in (name.encode(), declaration.encode()):
        out.write(struct.pack("<I", len(s)) + s)
    out.write(struct.pack("<I", count))
    for s in (blocks, values):
        out.write(struct.pack("<I", len(s)) + s)


# Where the f16 scales of a block are, and bytes that are scales themselves with the range they have in files.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": [], "NVFP4": []}
BYTES = {"MXFP4": ([0], 100, 140), "NVFP4": ([0, 1, 2, 3], 0, 0x7e)}


def library(out):
    rng = np.random.default_rng(1)
    for name, offsets in SCALES.items():
        kind = getattr(gguf.GGMLQuantizationType, name, None)
        if kind is None:
            continue
        block, size = gguf.GGML_QUANT_SIZES[kind]
        count = 300
        data = rng.integers(0, 256, (count, size), dtype=np.uint8)
        sane = data[:count // 2]  # the other half stays as it is: infinities, NaN and subnormal scales, all codes
        for at in offsets:
            scale = (rng.standard_normal(len(sane)) * 0.05).astype(np.float16)
            sane[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
        places, low, high = BYTES.get(name, ([], 0, 0))
        for at in places:
            sane[:, at] = rng.integers(low, high + 1, len(sane))
        try:  # and what gguf itself makes of numbers, where it can
            data = np.concatenate([data, quantize(rng.standard_normal((50, block)).astype(np.float32), kind)])
        except NotImplementedError:
            pass
        with np.errstate(all="ignore"):
            values = dequantize(data, kind).astype("<f4")
        write(out, name.lower(), "", len(data), data.tobytes(), values.tobytes())


# ---- random declarations: an expression is its text and a function of the fields and the element's index

def wrap(v):
    return (v + 2**31) % 2**32 - 2**31


f32 = np.float32


def to_i32(v):
    if np.isnan(v):
        return 0
    return int(max(-2.0**31, min(2.0**31 - 1, float(np.rint(v)))))


class Generator:
    def __init__(self, rng):
        self.rng = rng

    def binary(self, op, x, y, f):
        return f"({x[0]} {op} {y[0]})", lambda e: f(x[1](e), y[1](e))

    def condition(self, depth):
        kind = self.rng.randrange(6)
        if kind == 0 and depth:
            x = self.condition(depth - 1)
            return f"(not {x[0]})", lambda e: not x[1](e)
        if kind == 1 and depth:
            return self.binary("and", self.condition(depth - 1), self.condition(depth - 1), lambda a, b: a and b)
        if kind == 2 and depth:
            return self.binary("or", self.condition(depth - 1), self.condition(depth - 1), lambda a, b: a or b)
        make = self.number if self.rng.random() < 0.3 else self.integer
        op, f = self.rng.choice([("<", lambda a, b: a < b), ("<=", lambda a, b: a <= b), (">", lambda a, b: a > b),
                                 (">=", lambda a, b: a >= b), ("==", lambda a, b: a == b), ("!=", lambda a, b: a != b)])
        return self.binary(op, make(depth - 1), make(depth - 1), f)

    def integer(self, depth):
        r = self.rng
        if depth <= 0:
            n = r.choice([r.randrange(-9, 40), r.randrange(-2**31, 2**31)])
            return r.choice([
                (str(n) if n >= 0 else f"({n})", lambda e: n), ("i", lambda e: e["i"]), ("a[i]", lambda e: e["a"][e["i"]]),
                ("b[7 - i]", lambda e: e["b"][7 - e["i"]]), ("h[i]", lambda e: e["h"][e["i"]]), ("c", lambda e: e["c"][0]),
                ("w", lambda e: e["w"][0]), ("t", lambda e: e["t"][0]), ("a[w & 7]", lambda e: e["a"][e["w"][0] & 7]),
                ("twist[i, a[i]]", lambda e: wrap(e["i"] * 3 - (e["a"][e["i"]] ^ e["c"][0])))])
        x = self.integer(depth - 1)
        kind = r.randrange(16)
        if kind < 3:
            op, f = [("+", lambda a, b: wrap(a + b)), ("-", lambda a, b: wrap(a - b)), ("*", lambda a, b: wrap(a * b))][kind]
            return self.binary(op, x, self.integer(depth - 1), f)
        if kind < 6:
            op, f = [("&", lambda a, b: a & b), ("|", lambda a, b: a | b), ("^", lambda a, b: a ^ b)][kind - 3]
            return self.binary(op, x, self.integer(depth - 1), f)
        y = self.integer(depth - 1)
        if kind < 9:
            sign = r.choice(["", "-"])
            d = (f"({sign}((({y[0]}) & 7) + 2))", lambda e: ((y[1](e) & 7) + 2) * (-1 if sign else 1))
            if kind == 8:
                return f"ceil({x[0]} / {d[0]})", lambda e: -(-x[1](e) // d[1](e))
            op, f = [("/", lambda a, b: a // b), ("%", lambda a, b: a % b)][kind - 6]
            return self.binary(op, x, d, f)
        if kind < 11:
            s = (f"(({y[0]}) & 31)", lambda e: y[1](e) & 31)
            op, f = [("<<", lambda a, b: wrap(a << b)), (">>", lambda a, b: a >> b)][kind - 9]
            return self.binary(op, x, s, f)
        if kind == 11:
            return f"(-({x[0]}))", lambda e: wrap(-x[1](e))
        if kind == 12:
            return f"abs({x[0]})", lambda e: wrap(abs(x[1](e)))
        if kind == 13:
            word, f = r.choice([("min", min), ("max", max)])
            return f"{word}({x[0]}, {y[0]})", lambda e: f(x[1](e), y[1](e))
        if kind == 14:
            c = self.condition(depth - 1)
            return f"where({c[0]}, {x[0]}, {y[0]})", lambda e: x[1](e) if c[1](e) else y[1](e)
        v = self.number(depth - 1)
        return f"i32({v[0]})", lambda e: to_i32(v[1](e))

    def number(self, depth):
        r = self.rng
        if depth <= 0:
            n = r.choice([r.random(), r.random() * 1e-30, r.random() * 1e30])
            return r.choice([("d", lambda e: e["d"][0]), ("g[i]", lambda e: e["g"][e["i"]]), ("d", lambda e: e["d"][0]),
                             (repr(n) if "." in repr(n) else repr(n).replace("e", ".0e"), lambda e: f32(n))])
        x = self.number(depth - 1)
        kind = r.randrange(12)
        if kind < 7:
            op, f = [("+", np.add), ("-", np.subtract), ("*", np.multiply), ("/", np.divide)][kind % 4]
            if kind == 4:  # an integer takes the number's type
                y = self.integer(depth - 1)
                return self.binary(op, x, (y[0], lambda e: f32(y[1](e))), f)
            return self.binary(op, x, self.number(depth - 1), f)
        if kind < 11:
            word, f = [("abs", np.abs), ("floor", np.floor), ("ceil", np.ceil), ("round", np.rint)][kind - 7]
            return f"{word}({x[0]})", lambda e: f(x[1](e))
        c, y = self.condition(depth - 1), self.number(depth - 1)
        return f"where({c[0]}, {x[0]}, {y[0]})", lambda e: x[1](e) if c[1](e) else y[1](e)


def e4m3(code):
    sign = -1.0 if code & 128 else 1.0
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return f32("nan")
    return f32(sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0**(exponent - 7)))


def signed(bits):
    return lambda code: code - (code >> (bits - 1) << bits)


def declared(out):
    rng = random.Random(2)
    generator = Generator(rng)
    half = lambda code: np.array([code], np.uint16).view(np.float16)[0].astype(np.float32)
    fields = [("t", "bool", 0, 8, lambda code: int(code != 0)), ("a", "u4", 8, 4, int), ("b", "i3", 8, 3, signed(3)), ("h", "u1", 8, 1, int),
              ("d", "f16", 0, 16, half), ("g", "e4m3", 8, 8, e4m3), ("c", "i16", 0, 16, signed(16)), ("w", "u32", 0, 32, signed(32))]
    for number in range(400):
        rng.shuffle(fields)
        value = generator.number(rng.randrange(1, 5)) if number % 2 else generator.integer(rng.randrange(1, 5))
        text = f"format r{number} {{ block 8; "
        text += "".join(f"{name}: {type}{f'[{count}]' if count else ''}; " for name, type, count, _, _ in fields)
        text += f"twist[j, k] = j * 3 - (k ^ c); value[i] = {value[0]} }}"
        blocks, values = b"", []
        for _ in range(4):
            size = sum(max(count, 1) * bits for _, _, count, bits, _ in fields) // 8
            block = rng.randbytes(size)
            code, env = int.from_bytes(block, "little"), {}
            for name, _, count, bits, decode in fields:
                env[name] = []
                for _ in range(max(count, 1)):
                    env[name].append(decode(code & ((1 << bits) - 1)))
                    code >>= bits
            for i in range(8):
                env["i"] = i
                with np.errstate(all="ignore"):
                    values.append(f32(value[1](env)))
            blocks += block
        write(out, f"r{number}", text, 4, blocks, np.array(values, "<f4").tobytes())


if __name__ == "__main__":
    with open(sys.argv[2], "wb") as out:
        library(out) if sys.argv[1] == "library" else declared(out)
