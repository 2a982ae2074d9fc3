"""GGUF files as PyPI's gguf package writes and reads them, for test_gguf_file.c.

    write FOLDER      writes FOLDER/whole.gguf and a split model FOLDER/split-0000N-of-00004.gguf
    dump FILE...      prints what is in a file, or in the parts of a split model. One line a fact:
        key KEY KIND VALUE...                            numbers as integers or hexadecimal floats, strings in hex
        tensor NAME TYPE PART OFFSET BYTES SUM EXTENT... the sum of the bytes; extents outermost first

Exit status 3: gguf or numpy is not installed.
"""
import sys

try:
    import gguf
    import numpy as np
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(3)

KIND = gguf.GGUFValueType
TYPE = gguf.GGMLQuantizationType


def add_contents(w):
    numbers = {KIND.UINT8: (0, 255), KIND.INT8: (-128, 127), KIND.UINT16: (0, 65535), KIND.INT16: (-32768, 32767),
               KIND.UINT32: (0, 2**32 - 1), KIND.INT32: (-2**31, 2**31 - 1), KIND.UINT64: (0, 2**64 - 1),
               KIND.INT64: (-2**63, 2**63 - 1), KIND.FLOAT32: (1e-45, -0.1), KIND.FLOAT64: (5e-324, 1 / 3),
               KIND.BOOL: (False, True)}
    for kind, values in numbers.items():
        for i, value in enumerate(values):
            w.add_key_value(f"number.{kind.name}.{i}", value, kind)
        w.add_key_value(f"numbers.{kind.name}", list(values) * 3, KIND.ARRAY, kind)
    w.add_string("string", "zwölf Boxkämpfer\0\n")
    w.add_string("string.empty", "")
    w.add_array("strings", ["", "a", "Ġthe", "x" * 300])
    random = np.random.default_rng(1)
    w.add_tensor("vector", random.random(7, np.float32))
    w.add_tensor("row", random.random((1, 5), np.float32))
    w.add_tensor("column", random.random((5, 1)))
    w.add_tensor("cube", random.random((2, 3, 4, 5)).astype(np.float16))
    w.add_tensor("integers", np.arange(9, dtype=np.int32).reshape(3, 3))
    for kind in (TYPE.BF16, TYPE.Q4_0, TYPE.Q4_1, TYPE.Q5_0, TYPE.Q5_1, TYPE.Q8_0):
        values = random.random((3, 96), np.float32)
        w.add_tensor(f"weights.{kind.name}", gguf.quants.quantize(values, kind), raw_dtype=kind)


def write(folder):
    for name, most, alignment in (("whole", 0, 256), ("split", 3, 32)):
        w = gguf.GGUFWriter(f"{folder}/{name}.gguf", "test", split_max_tensors=most)
        if alignment != 32:
            w.add_custom_alignment(alignment)
        add_contents(w)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


def value_text(kind, field, i):
    part = field.parts[i]
    if kind == KIND.STRING:
        return "x" + bytes(part).hex()
    if kind in (KIND.FLOAT32, KIND.FLOAT64):
        return float(part[0]).hex()
    return str(int(part[0]))


def dump(paths):
    names = {KIND.STRING: "string", KIND.BOOL: "bool"}
    for kind in KIND:
        names.setdefault(kind, kind.name.replace("UINT", "u").replace("INT", "i").replace("FLOAT", "f"))
    for part, path in enumerate(paths):
        reader = gguf.GGUFReader(path)
        for key, field in reader.fields.items():
            if part == 0 and not key.startswith("GGUF."):
                array = "array " if field.types[0] == KIND.ARRAY else ""
                kind = field.types[-1]
                print(f"key {key} {array}{names[kind]}", *(value_text(kind, field, i) for i in field.data))
        for t in reader.tensors:
            extents = [int(n) for n in t.shape]
            while len(extents) > 1 and extents[-1] == 1:
                extents.pop()
            data = np.frombuffer(t.data.tobytes(), np.uint8)
            print("tensor", t.name, t.tensor_type.name.lower(), part, t.data_offset, t.n_bytes,
                  data.sum(dtype=np.uint64), *reversed(extents))


if __name__ == "__main__":
    write(sys.argv[2]) if sys.argv[1] == "write" else dump(sys.argv[2:])
