"""Tests for gguf_file."""

from collections.abc import Iterator
import os
import random
import struct
import time

from absl.testing import absltest
from absl.testing import parameterized
import gguf
import numpy as np

from converters.hf import gguf_file
from converters.testing import gguf_files
from saxml_ext.pax import errors

TYPES = gguf_files.TYPES
_NAME = 'blk.0.ffn_down.weight'


def _half(data: bytes) -> float:
  return float(np.frombuffer(data, '<f2')[0])


def _nibbles(data: bytes) -> list[int]:
  """Returns the low halves of all bytes, then the high ones."""
  return [b & 15 for b in data] + [b >> 4 for b in data]


def _fives(high: bytes, low: bytes) -> list[int]:
  bits = int.from_bytes(high, 'little')
  return [q | (bits >> i & 1) << 4 for i, q in enumerate(_nibbles(low))]


def _scales(data: bytes) -> tuple[list[int], list[int]]:
  """Returns the 8 scales and 8 minima of 6 bits that 12 bytes hold."""
  scales, minima = [], []
  for i in range(8):
    if i < 4:
      scales.append(data[i] & 63)
      minima.append(data[i + 4] & 63)
    else:
      scales.append(data[i + 4] & 15 | data[i - 4] >> 6 << 4)
      minima.append(data[i + 4] >> 4 | data[i] >> 6 << 4)
  return scales, minima


def _values(kind: gguf_files.TYPES, b: bytes) -> Iterator[float]:
  """Yields the values of a block by the formulas of llama.cpp."""
  if kind == TYPES.Q4_0:
    yield from (_half(b[:2]) * (q - 8) for q in _nibbles(b[2:]))
  elif kind == TYPES.Q4_1:
    yield from (_half(b[:2]) * q + _half(b[2:4]) for q in _nibbles(b[4:]))
  elif kind == TYPES.Q5_0:
    yield from (_half(b[:2]) * (q - 16) for q in _fives(b[2:6], b[6:]))
  elif kind == TYPES.Q5_1:
    factor, least = _half(b[:2]), _half(b[2:4])
    yield from (factor * q + least for q in _fives(b[4:8], b[8:]))
  elif kind == TYPES.Q8_0:
    yield from (_half(b[:2]) * q for q in np.frombuffer(b[2:], 'i1').tolist())
  elif kind in (TYPES.Q4_K, TYPES.Q5_K):
    factor, least = _half(b[:2]), _half(b[2:4])
    scales, minima = _scales(b[4:16])
    high, low = (
      (b[16:48], b[48:]) if kind == TYPES.Q5_K else (bytes(32), b[16:])
    )
    for i in range(256):
      group = i // 32
      byte = low[group // 2 * 32 + i % 32]
      code = byte >> 4 if group % 2 else byte & 15
      code |= (high[i % 32] >> group & 1) << 4
      yield factor * scales[group] * code - least * minima[group]
  else:
    low, high, scales = b[:128], b[128:192], np.frombuffer(b[192:208], 'i1')
    for i in range(256):
      half, rest = divmod(i, 128)
      byte = low[half * 64 + rest % 64]
      code = byte >> 4 if rest >= 64 else byte & 15
      code |= (high[half * 32 + rest % 32] >> rest // 32 * 2 & 3) << 4
      yield _half(b[208:]) * int(scales[i // 16]) * (code - 32)


def _random_blocks(
  kind: gguf_files.TYPES, rows: int, columns: int
) -> np.ndarray:
  """Returns random blocks with scales that are finite, [rows, bytes]."""
  size, num_bytes = gguf.GGML_QUANT_SIZES[kind]
  rng = np.random.default_rng(kind.value)
  blocks = rng.integers(0, 256, (rows, columns // size, num_bytes), np.uint8)
  for offset in {TYPES.Q6_K: (208,), TYPES.Q4_0: (0,), TYPES.Q5_0: (0,)}.get(
    kind, (0,) if kind == TYPES.Q8_0 else (0, 2)
  ):
    halves = rng.normal(size=blocks.shape[:2]).astype('<f2')
    blocks[..., offset : offset + 2] = halves[..., None].view(np.uint8)
  return blocks


class GGUFFileTest(parameterized.TestCase):
  def path(self) -> str:
    return os.path.join(self.create_tempdir().full_path, 'model.gguf')

  def write(self, **changes) -> str:
    """Writes a model in Q8_0; returns its path."""
    return gguf_files.write(
      self.path(),
      gguf_files.state_dict(),
      gguf_files.metadata(**changes),
      type_of=lambda name: TYPES.Q8_0,
    )

  def assert_refused(self, path: str, message: str) -> None:
    begin = time.process_time()
    with self.assertRaisesRegex(errors.CheckpointError, message):
      gguf_file.GGUFFile(path)
    self.assertLess(time.process_time() - begin, 5)

  def change(self, path: str, offset: int, data: bytes) -> None:
    with open(path, 'r+b') as f:
      f.seek(offset)
      f.write(data)

  @parameterized.parameters(
    *('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q4_K', 'Q5_K', 'Q6_K')
  )
  def test_blocks_are_dequantized_by_their_formula(self, name):
    kind = TYPES[name]
    blocks = _random_blocks(kind, 3, 512)
    path = self.path()
    writer = gguf.GGUFWriter(path, 'llama')
    writer.add_tensor('w', blocks.reshape(3, -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expected = [
      [value for block in row for value in _values(kind, block.tobytes())]
      for row in blocks
    ]
    file = gguf_file.GGUFFile(path)
    self.assertEqual(file.shapes, {'w': (3, 512)})
    self.assertEqual(file.read('w').dtype, np.float32)
    np.testing.assert_allclose(file.read('w'), expected, rtol=1e-5, atol=1e-6)
    for columns in (slice(0, 512), slice(5, 6), slice(30, 300)):
      np.testing.assert_array_equal(
        file.read('w', (slice(1, 3), columns)), file.read('w')[1:3, columns]
      )

  def test_float_tensors_keep_their_type(self):
    tensors = gguf_files.state_dict()
    for name, dtype in (
      ('F32', 'float32'),
      ('F16', 'float16'),
      ('BF16', 'bfloat16'),
    ):
      file = gguf_file.GGUFFile(
        gguf_files.write(
          self.path(),
          tensors,
          gguf_files.metadata(),
          type_of=lambda _, name=name: getattr(TYPES, name),
        )
      )
      value = file.read(_NAME)
      self.assertEqual(value.dtype.name, dtype)
      np.testing.assert_allclose(
        value.astype(np.float32),
        tensors['model.layers.0.mlp.down_proj.weight'],
        rtol=1e-2,
      )
      self.assertEqual(
        file.read(_NAME, (slice(2, 4), slice(1, 9))).shape, (2, 8)
      )

  def test_sizes_of_types_match_gguf(self):
    for number, type_ in gguf_file._TYPES.items():
      self.assertEqual(TYPES(number).name, type_.name)
      self.assertEqual(
        gguf.GGML_QUANT_SIZES[TYPES(number)],
        (type_.values, type_.dtype.itemsize),
      )

  def test_metadata_of_all_types_is_read(self):
    path = self.path()
    writer = gguf.GGUFWriter(path, 'llama')
    values = {
      'uint8': 255,
      'int8': -1,
      'uint16': 65535,
      'int16': -2,
      'uint32': 1 << 31,
      'int32': -3,
      'float32': 0.5,
      'uint64': 1 << 63,
      'int64': -4,
      'float64': 0.1,
      'bool': True,
      'string': 'ä😀',
      'array': [1.5, 2.5],
    }
    for kind, value in values.items():
      getattr(writer, f'add_{kind}')(kind, value)
    writer.add_array('texts', ['', 'ß'])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = dict(gguf_file.GGUFFile(path).metadata)
    self.assertEqual(metadata.pop('general.architecture'), 'llama')
    self.assertEqual(metadata, values | {'texts': ['', 'ß']})

  def test_other_files_are_refused_by_name(self):
    path = self.path()
    for magic in b'PK\3\4', b'lmgg', b'{"a"':
      with open(path, 'wb') as f:
        f.write(magic + bytes(100))
      self.assert_refused(
        path, f'is not a GGUF file: it begins with b.*{magic[:1].decode()}'
      )
    self.assert_refused(path + '.missing', 'is missing')

  def test_other_versions_are_refused(self):
    path = self.write()
    for version in 1, 4:
      self.change(path, 4, struct.pack('<I', version))
      self.assert_refused(path, f'version {version} of GGUF.*: 2, 3')

  def test_swapped_bytes_are_refused_with_the_remedy(self):
    path = gguf_files.write(
      self.path(),
      gguf_files.state_dict(),
      gguf_files.metadata(),
      endianess=gguf.GGUFEndian.BIG,
    )
    self.assert_refused(path, 'big-endian GGUF file.*gguf-convert-endian')

  def test_parts_of_a_model_are_refused_with_the_remedy(self):
    self.assert_refused(
      self.write(split__count=3), 'one of 3 parts.*llama-gguf-split --merge'
    )
    gguf_file.GGUFFile(self.write(split__count=1))

  def test_other_types_are_refused_by_name(self):
    for name in 'Q2_K', 'Q3_K', 'IQ4_XS', 'TQ1_0':
      kind = TYPES[name]
      size, num_bytes = gguf.GGML_QUANT_SIZES[kind]
      path = self.path()
      writer = gguf.GGUFWriter(path, 'llama')
      writer.add_tensor('w', np.zeros((2, num_bytes), np.uint8), raw_dtype=kind)
      writer.write_header_to_file()
      writer.write_kv_data_to_file()
      writer.write_tensors_to_file()
      writer.close()
      self.assert_refused(path, f'w has the type {name}, .*: F32, F16, .*Q6_K')

  def test_huge_counts_are_refused(self):
    for offset in 8, 16:
      path = self.write()
      self.change(path, offset, struct.pack('<Q', 1 << 60))
      self.assert_refused(path, 'ends too early')

  def test_huge_array_is_refused(self):
    path = self.write()
    with open(path, 'rb') as f:
      data = f.read()
    for key in b'tokenizer.ggml.tokens', b'tokenizer.ggml.token_type':
      begin = data.index(key) + len(key) + 8
      self.change(path, begin, struct.pack('<Q', 1 << 40))
      self.assert_refused(path, 'ends too early')

  def test_tensor_with_huge_dims_is_refused(self):
    path = self.write()
    with open(path, 'rb') as f:
      begin = f.read().index(_NAME.encode()) + len(_NAME)
    self.change(path, begin + 4, struct.pack('<QQ', 1 << 40, 1 << 40))
    self.assert_refused(path, f'{_NAME} of Q8_0.* needs \\d+ bytes')
    self.change(path, begin, struct.pack('<I', 1 << 30))
    self.assert_refused(path, 'has 1073741824 dimensions, above the limit of 4')

  def test_rows_of_partial_blocks_are_refused(self):
    path = self.write()
    with open(path, 'rb') as f:
      begin = f.read().index(_NAME.encode()) + len(_NAME)
    self.change(path, begin + 4, struct.pack('<Q', 33))
    self.assert_refused(path, 'not a multiple of 32 values')

  def test_overlapping_and_repeated_names_are_refused(self):
    path = self.write()
    with open(path, 'rb') as f:
      data = f.read()
    name = b'blk.1.ffn_down.weight'
    begin = data.index(_NAME.encode()) + len(_NAME)
    other = data.index(name) + len(name)
    self.change(path, other + 24, data[begin + 24 : begin + 32])
    self.assert_refused(path, 'overlaps tensor')
    self.change(path, other - len(name), _NAME.encode())
    self.assert_refused(path, 'has tensor blk.0.ffn_down.weight twice')

  def test_repeated_key_is_refused(self):
    path = self.write()
    with open(path, 'rb') as f:
      begin = f.read().index(b'tokenizer.ggml.bos_token_id')
    self.change(path, begin, b'tokenizer.ggml.eos_token_id')
    self.assert_refused(path, "key 'tokenizer.ggml.eos_token_id' twice")

  def test_wrong_alignment_is_refused(self):
    for value in 0, 3, 33, 'x':
      path = self.write(general__alignment=value)
      self.assert_refused(path, 'must be a power of two|alignment of')

  def test_invalid_utf8_is_refused(self):
    path = self.write()
    with open(path, 'rb') as f:
      begin = f.read().index(gguf_files.TEMPLATE.encode())
    self.change(path, begin, b'\xff\xfe')
    self.assert_refused(path, 'is not UTF-8')

  def test_truncated_file_is_refused(self):
    path = self.write()
    size = os.path.getsize(path)
    for share in range(60):
      os.truncate(path, size - 1 - share * size // 61)
      with self.assertRaises(errors.CheckpointError):
        gguf_file.GGUFFile(path)

  def test_changed_bytes_never_raise_other_errors(self):
    path = self.write()
    with open(path, 'rb') as f:
      data = f.read()
    header = data.index(_NAME.encode()) + 400
    rng = random.Random(1)
    refused = 0
    for _ in range(150):
      changed = bytearray(data)
      for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(header)] = rng.randrange(256)
      with open(path, 'wb') as f:
        f.write(changed)
      try:
        gguf_file.GGUFFile(path)
      except errors.CheckpointError:
        refused += 1
    self.assertGreater(refused, 20)


if __name__ == '__main__':
  absltest.main()
