"""Tests of writing checkpoints in parts and of resuming after a kill."""

import json
import os
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import ml_dtypes
import numpy as np

from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import errors
from saxml_ext.pax import manifest
from saxml_ext.pax import metadata
from saxml_ext.pax.testing import checkpoints

_SOURCE = manifest.Source({'model.bin': '0123'}, {'dtype': 'float32'}, 'now')
_SMALL_CHUNKS = 4096


def _variables() -> dict[str, np.ndarray]:
  rng = np.random.default_rng(0)
  return {
    'params.a': rng.standard_normal((50, 100), np.float32),
    'params.b': rng.standard_normal((3, 40, 30)).astype(ml_dtypes.bfloat16),
    'params.c': np.zeros(7, np.float32),
    'params.d': np.array(5, np.int32),
  }


def _tree(path: pathlib.Path) -> dict[str, bytes]:
  return {
    str(f.relative_to(path)): f.read_bytes()
    for f in sorted(path.rglob('*'))
    if f.is_file()
  }


class CheckpointWriterTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path, 'pax')
    self.step_dir = self.path / 'checkpoint_00000000'
    old = metadata.MAX_CHUNK_BYTES
    metadata.MAX_CHUNK_BYTES = _SMALL_CHUNKS
    self.addCleanup(setattr, metadata, 'MAX_CHUNK_BYTES', old)

  def writer(self, source=_SOURCE, **options) -> checkpoint_writer.Writer:
    return checkpoint_writer.Writer(str(self.path), source=source, **options)

  def write_rest(self, writer, **changes) -> list[str]:
    """Adds the missing variables, commits, and returns the added names."""
    variables = _variables() | changes
    added = []
    with writer:
      for name, value in variables.items():
        if not writer.has(name):
          writer.add(name, value)
          added.append(name)
      writer.commit()
    return added

  @parameterized.parameters(
    ((50400, 4096), 'float32', (3877, 4096)),
    ((4096, 50400), 'float32', (316, 50400)),
    ((3, 4096, 16, 256), 'float32', (1, 4096, 16, 256)),
    ((3, 8192, 16, 256), 'float32', (1, 4096, 16, 256)),
    ((4096,), 'bfloat16', (4096,)),
    ((), 'int32', ()),
    ((0, 5), 'int8', (1, 5)),
  )
  def test_chunks_are_bounded_and_even(self, shape, dtype, expected):
    metadata.MAX_CHUNK_BYTES = 1 << 26
    spec = metadata.ArraySpec(shape, dtype)
    self.assertEqual(spec.chunk_shape, expected)
    ranges = spec.row_ranges
    flat = [i for begin, end in ranges for i in (begin, end)]
    if shape:
      self.assertEqual(flat, sorted(flat))
      self.assertEqual(sum(e - b for b, e in ranges), shape[0])

  def test_compression_is_a_choice(self):
    sizes = []
    for compress in (True, False):
      self.write_rest(self.writer(compress=compress, overwrite=True))
      chunk = self.step_dir / 'state' / 'mdl_vars.params.c' / '0'
      sizes.append(chunk.stat().st_size)
      read = checkpoints.read_variables(str(self.path))
      for name, value in _variables().items():
        np.testing.assert_array_equal(read[name], value)
    self.assertEqual(sizes[1], 7 * 4)
    self.assertLess(sizes[0], sizes[1])

  def test_parts_are_files_that_tensorstore_reads(self):
    self.write_rest(self.writer())
    files = os.listdir(self.step_dir / 'state' / 'mdl_vars.params.a')
    # 10 rows of 400 bytes fit into 4096 bytes.
    self.assertCountEqual(files, ['.zarray'] + [f'{i}.0' for i in range(5)])
    read = checkpoints.read_variables(str(self.path))
    for name, value in _variables().items():
      self.assertEqual(read[name].dtype, value.dtype)
      np.testing.assert_array_equal(read[name], value)

  def test_reads_parts(self):
    self.write_rest(self.writer())
    reader = checkpoint.Reader(str(self.path))
    a = _variables()['params.a']
    np.testing.assert_array_equal(
      reader.read_part('params.a', np.s_[7:33, 5]), a[7:33, 5]
    )
    begins, parts = zip(*reader.read_rows('params.a'))
    self.assertEqual(begins, (0, 10, 20, 30, 40))
    np.testing.assert_array_equal(np.concatenate(parts), a)
    with self.assertRaisesRegex(errors.CheckpointError, 'no variable nonsense'):
      reader.read_part('nonsense', np.s_[0])

  @parameterized.named_parameters(
    ('gap', [(0, (10, 100)), (20, (10, 100))], 'begins at row 20'),
    ('size', [(0, (9, 100))], r'float32\[9, 100\]. Expected row 0 and'),
    (
      'end',
      [(b, (10, 100)) for b in range(0, 40, 10)],
      'has only 4 of 5 parts',
    ),
  )
  def test_wrong_parts_are_refused(self, parts, message):
    with self.writer() as writer:
      with self.assertRaisesRegex(ValueError, message):
        writer.add_parts(
          'params.a',
          metadata.ArraySpec((50, 100), 'float32'),
          ((begin, np.zeros(shape, np.float32)) for begin, shape in parts),
        )

  def test_manifest(self):
    self.write_rest(self.writer())
    document = json.loads((self.step_dir / 'manifest.json').read_text())
    self.assertEqual(
      document['source'],
      {'files': {'model.bin': '0123'}, 'options': {'dtype': 'float32'}},
    )
    self.assertEqual(
      document['variables']['params.c'],
      # gzip writes this CRC-32 at the end of 28 zero bytes.
      {
        'shape': [7],
        'dtype': 'float32',
        'bytes': 28,
        'crc32': '807077e9',
      },
    )
    reader = checkpoint.Reader(str(self.path))
    for name in _variables():
      self.assertTrue(reader.verify(name))

  def test_damage_that_reads_well_is_found(self):
    self.write_rest(self.writer())
    variable = self.step_dir / 'state' / 'mdl_vars.params.a'
    (variable / '1.0').write_bytes((variable / '2.0').read_bytes())
    reader = checkpoint.Reader(str(self.path))
    reader.read('params.a')
    with self.assertRaisesRegex(errors.CheckpointError, 'a is .* checksum'):
      reader.verify('params.a')

  @parameterized.parameters('{', '[]', '{"version": 9}', '{"version": 1}')
  def test_damaged_manifest(self, text):
    self.write_rest(self.writer())
    (self.step_dir / 'manifest.json').write_text(text)
    with self.assertRaisesRegex(errors.CheckpointError, 'is not a manifest'):
      checkpoint.Reader(str(self.path))

  def test_goes_on_where_a_killed_one_stopped(self):
    self.write_rest(self.writer())
    expected = _tree(self.path)
    self.path = self.path.with_name('again')
    killed = self.writer()
    killed.add('params.a', _variables()['params.a'])
    killed.add('params.b', _variables()['params.b'])
    killed.sync()
    with self.assertRaises(errors.CheckpointError):
      checkpoint.Reader(str(self.path))
    added = self.write_rest(self.writer(resume=True))
    self.assertEqual(added, ['params.c', 'params.d'])
    self.assertEqual(_tree(self.path), expected)

  def test_killed_while_it_commits(self):
    self.write_rest(self.writer())
    expected = _tree(self.path)
    self.path = self.path.with_name('again')
    killed = self.writer()
    killed.add('params.a', _variables()['params.a'])
    killed.sync()
    # After a kill, each file that is renamed at the end can have a partial
    # version.
    (work,) = self.path.glob('*-tmp-0')
    for name in expected:
      name = name.removeprefix('checkpoint_00000000/')
      if 'mdl_vars' not in name and 'step' not in name:
        (work / f'{name}.partial').write_text('Check')
    self.write_rest(self.writer(resume=True))
    self.assertEqual(_tree(self.path), expected)

  @parameterized.parameters('cut', 'wrong', 'gone')
  def test_damaged_variable_is_written_again(self, how):
    killed = self.writer()
    killed.add('params.a', _variables()['params.a'])
    killed.add('params.b', _variables()['params.b'])
    killed.sync()
    (state,) = self.path.glob('*-tmp-0/state/mdl_vars.params.a')
    chunk, other = state / '1.0', state / '2.0'
    if how == 'cut':
      chunk.write_bytes(chunk.read_bytes()[:100])
    elif how == 'wrong':
      chunk.write_bytes(other.read_bytes())
    else:
      chunk.unlink()
    added = self.write_rest(self.writer(resume=True))
    self.assertEqual(added, ['params.a', 'params.c', 'params.d'])
    np.testing.assert_array_equal(
      checkpoints.read_variables(str(self.path))['params.a'],
      _variables()['params.a'],
    )

  def test_torn_journal_entry(self):
    killed = self.writer()
    killed.add('params.a', _variables()['params.a'])
    killed.sync()
    entry = self.path / 'checkpoint_00000000.journal' / 'params.a'
    entry.write_bytes(entry.read_bytes()[:-5])
    self.assertLen(self.write_rest(self.writer(resume=True)), 4)

  @parameterized.parameters('files', 'options', 'stamp')
  def test_other_source_is_not_mixed_in(self, field):
    self.writer().add('params.a', _variables()['params.a'])
    changed = {'files': {}, 'options': {}, 'stamp': 'later'}[field]
    other = manifest.Source(**{**vars(_SOURCE), field: changed})
    with self.assertRaisesRegex(
      errors.CheckpointError, 'another conversion.*without --resume'
    ):
      self.writer(other, resume=True)
    writer = self.writer(other)
    self.assertRegex(writer.removed, 'tmp-0$')
    self.assertLen(self.write_rest(writer), 4)
    self.assertEqual(os.listdir(self.path), ['checkpoint_00000000'])

  def test_resume_of_nothing_and_of_a_finished_one(self):
    self.assertLen(self.write_rest(self.writer(resume=True)), 4)
    before = _tree(self.path)
    # The writer was killed after the last rename and before the cleanup.
    (self.path / 'checkpoint_00000000.orbax-checkpoint-tmp-1').mkdir()
    (self.path / 'checkpoint_00000000.journal').mkdir()
    with self.writer(resume=True) as writer:
      self.assertTrue(writer.finished)
    self.assertEqual(os.listdir(self.path), ['checkpoint_00000000'])
    self.assertEqual(_tree(self.path), before)

  def test_source_at_fault_leaves_nothing(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'source is bad'):
      with self.writer() as writer:
        writer.add('params.a', _variables()['params.a'])
        raise errors.CheckpointError('source is bad')
    self.assertEmpty(os.listdir(self.path))

  @parameterized.parameters(
    KeyboardInterrupt, MemoryError, errors.UnwritableError
  )
  def test_interrupted_keeps_what_it_has(self, error):
    with self.assertRaises(error):
      with self.writer() as writer:
        writer.add('params.a', _variables()['params.a'])
        raise error()
    self.assertNotIn('checkpoint_00000000', os.listdir(self.path))
    self.assertLen(self.write_rest(self.writer(resume=True)), 3)


if __name__ == '__main__':
  absltest.main()
