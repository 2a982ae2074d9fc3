#!/usr/bin/env python3
"""Writes a GGUF file again with its matrices in another type: requantise.py IN.gguf OUT.gguf f16|q8_0|q4_0|...

For measuring one model in several formats when only one of them is to be had. Needs PyPI's `gguf`."""
import sys

from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

source, target, name = sys.argv[1:]
kind = GGMLQuantizationType[name.upper()]
reader = GGUFReader(source)
writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
for field in reader.fields.values():
    if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
        continue
    if field.types[0] == GGUFValueType.ARRAY:
        writer.add_array(field.name, field.contents())
    else:
        writer.add_key_value(field.name, field.contents(), field.types[0])
for tensor in reader.tensors:
    values = dequantize(tensor.data, tensor.tensor_type)
    if values.ndim < 2:
        writer.add_tensor(tensor.name, values.astype("float32"))
    else:
        writer.add_tensor(tensor.name, quantize(values, kind), raw_dtype=kind)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
