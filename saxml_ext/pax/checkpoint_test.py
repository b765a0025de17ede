"""Tests of reading and writing PAX checkpoints."""

import json
import os
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import ml_dtypes
import numpy as np
import tensorstore as ts

from saxml_ext.pax import checkpoint
from saxml_ext.pax import checkpoint_writer
from saxml_ext.pax import errors
from saxml_ext.pax.testing import checkpoints

_SCALE = 'params.lm.final_ln.scale'
_QKV = 'params.lm.transformer.x_layers_0.self_attention.combined_qkv.w'


def _variables() -> dict[str, np.ndarray]:
  rng = np.random.default_rng(0)
  return {
    _SCALE: np.zeros(8, np.float32),
    _QKV: rng.standard_normal((3, 8, 2, 4)).astype(ml_dtypes.bfloat16),
    'params.lm.quantized.w': np.arange(-8, 8, dtype=np.int8).reshape(2, 8),
  }


def _tree(path: pathlib.Path) -> dict[str, bytes]:
  return {
    str(f.relative_to(path)): f.read_bytes()
    for f in sorted(path.rglob('*'))
    if f.is_file()
  }


class CheckpointTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path, 'pax')
    self.step_dir = self.path / 'checkpoint_00000000'
    self.state = self.step_dir / 'state'

  def write(self) -> dict[str, np.ndarray]:
    variables = _variables()
    checkpoints.write_checkpoint(str(self.path), variables.items())
    return variables

  @parameterized.parameters(False, True)
  def test_round_trip(self, from_step_dir):
    written = self.write()
    read = checkpoints.read_variables(
      str(self.step_dir if from_step_dir else self.path)
    )
    self.assertCountEqual(read, written)
    for name, value in written.items():
      self.assertEqual(read[name].dtype, value.dtype)
      np.testing.assert_array_equal(read[name], value)

  def test_only_named_variables_are_read(self):
    self.write()
    read = checkpoints.read_variables(str(self.path), [_SCALE])
    self.assertEqual(list(read), [_SCALE])

  def test_files_are_those_of_paxml(self):
    self.write()
    files = _tree(self.step_dir)
    self.assertContainsSubset(
      [
        'commit_success.txt',
        'metadata/commit_success.txt',
        'metadata/metadata',
        'state/commit_success.txt',
        'state/step/.zarray',
        'state/step/0',
        f'state/mdl_vars.{_QKV}/0.0.0.0',
      ],
      files,
    )
    zarray = json.loads(files[f'state/mdl_vars.{_SCALE}/.zarray'])
    self.assertEqual(
      zarray,
      {
        'chunks': [8],
        'compressor': {'id': 'zstd', 'level': 1},
        'dimension_separator': '.',
        'dtype': '<f4',
        'fill_value': None,
        'filters': None,
        'order': 'C',
        'shape': [8],
        'zarr_format': 2,
      },
    )

  def test_same_variables_give_same_bytes(self):
    self.write()
    first = _tree(self.path)
    self.path = self.path.with_name('again')
    self.write()
    self.assertEqual(_tree(self.path), first)

  def test_newest_step_is_found_and_unfinished_ones_are_not(self):
    self.write()
    checkpoints.write_checkpoint(str(self.path), _variables().items(), step=12)
    (self.path / 'checkpoint_00000099.orbax-checkpoint-tmp-5').mkdir()
    self.assertEqual(
      checkpoint.find_step_dir(str(self.path)),
      str(self.path / 'checkpoint_00000012'),
    )

  def test_reads_ocdbt(self):
    self.write()
    ocdbt = {
      'driver': 'ocdbt',
      'base': {'driver': 'file', 'path': f'{self.path}/new/'},
    }
    store = ts.KvStore.open(ocdbt).result()
    for name, data in _tree(self.state).items():
      if '/' in name:
        store.write(name, data).result()
    self.state.rename(self.path / 'plain')
    (self.path / 'new').rename(self.state)
    (self.state / 'commit_success.txt').touch()
    read = checkpoints.read_variables(str(self.path))
    np.testing.assert_array_equal(read[_QKV], _variables()[_QKV])
    self.assertLen(read, 3)

  @parameterized.parameters('', 'state', 'metadata')
  def test_missing_marker(self, part):
    self.write()
    (self.step_dir / part / 'commit_success.txt').unlink()
    with self.assertRaisesRegex(
      errors.CheckpointError, f'{part}.*commit_success.txt is missing'
    ):
      checkpoint.find_step_dir(str(self.path))

  def test_paxml_leaves_no_markers_on_a_disk(self):
    written = self.write()
    for marker in self.step_dir.rglob('commit_success.txt'):
      marker.unlink()
    with self.assertRaisesRegex(errors.CheckpointError, 'txt is missing'):
      checkpoints.read_variables(str(self.path))
    (self.step_dir / 'manifest.json').unlink()
    read = checkpoints.read_variables(str(self.path))
    np.testing.assert_array_equal(read[_QKV], written[_QKV])
    # The checkpoint resembles an interrupted copy.
    (self.state / f'mdl_vars.{_QKV}' / '.zarray').unlink()
    with self.assertRaisesRegex(errors.CheckpointError, f'{_QKV} is missing'):
      checkpoints.read_variables(str(self.path))
    (self.step_dir / 'metadata' / 'metadata').unlink()
    with self.assertRaisesRegex(errors.CheckpointError, 'txt is missing'):
      checkpoints.read_variables(str(self.path))

  def test_no_checkpoint(self):
    with self.assertRaisesRegex(errors.CheckpointError, 'cannot be listed'):
      checkpoint.find_step_dir(str(self.path))
    self.path.mkdir()
    (self.path / 'model.safetensors').touch()
    with self.assertRaisesRegex(
      errors.CheckpointError, 'no checkpoint_<step>.*contains model.safetensors'
    ):
      checkpoint.find_step_dir(str(self.path))

  def test_hugging_face_directory(self):
    directory = self.create_tempdir()
    directory.create_file('config.json')
    with self.assertRaisesRegex(
      errors.CheckpointError,
      'is a Hugging Face directory.*convert_gptj_ckpt --'
      f' --base={directory.full_path} --pax={directory.full_path}-pax',
    ):
      checkpoint.Reader(directory.full_path)

  def test_missing_variable(self):
    self.write()
    with self.assertRaisesRegex(errors.CheckpointError, 'no variable nonsense'):
      checkpoints.read_variables(str(self.path), ['nonsense'])
    (self.state / f'mdl_vars.{_SCALE}' / '.zarray').unlink()
    with self.assertRaisesRegex(
      errors.CheckpointError,
      rf'{_SCALE} is missing. The metadata has float32\[8\]',
    ):
      checkpoints.read_variables(str(self.path))

  @parameterized.parameters(
    ('"shape":[8]', '"shape":[9]', r'is float32\[9\]. .* has float32\[8\]'),
    ('"<f4"', '"<i4"', r'is int32\[8\]. .* has float32\[8\]'),
    ('"<f4"', '"|O"', 'cannot be opened'),
    ('"shape":[8]', '"shape":[888888888888888]', 'No model has such'),
    ('"chunks":[8]', '"chunks":[888888888888888]', 'No model has such'),
  )
  def test_wrong_array(self, old, new, message):
    self.write()
    file = self.state / f'mdl_vars.{_SCALE}' / '.zarray'
    file.write_text(file.read_text().replace(old, new))
    with self.assertRaisesRegex(errors.CheckpointError, message):
      checkpoints.read_variables(str(self.path))

  def test_missing_chunk_is_not_read_as_zeros(self):
    self.write()
    (self.state / f'mdl_vars.{_QKV}' / '0.0.0.0').unlink()
    with self.assertRaisesRegex(
      errors.CheckpointError, f'{_QKV} cannot be read'
    ):
      checkpoints.read_variables(str(self.path))

  def test_unusual_files_are_refused(self):
    self.write()
    array = self.state / f'mdl_vars.{_QKV}'
    chunk = array / '0.0.0.0'
    data = chunk.read_bytes()
    for message, make in (
      ('not a regular file', os.mkfifo),
      ('not a regular file', lambda path: os.symlink('/dev/zero', path)),
      ('has a file of', lambda path: os.truncate(os.open(path, 66), 2**33)),
    ):
      chunk.unlink()
      make(chunk)
      with self.assertRaisesRegex(errors.CheckpointError, message):
        checkpoints.read_variables(str(self.path), [_QKV])
    chunk.write_bytes(data)
    (array / '.zarray').unlink()
    os.mkfifo(array / '.zarray')
    with self.assertRaisesRegex(errors.CheckpointError, 'not a regular file'):
      checkpoints.read_variables(str(self.path), [_QKV])

  def test_cut_off_chunk(self):
    self.write()
    chunk = self.state / f'mdl_vars.{_QKV}' / '0.0.0.0'
    chunk.write_bytes(chunk.read_bytes()[:-20])
    with self.assertRaisesRegex(
      errors.CheckpointError, f'{_QKV} cannot be read'
    ):
      checkpoints.read_variables(str(self.path))

  def test_failed_write_leaves_nothing(self):
    def variables():
      yield _SCALE, np.zeros(8, np.float32)
      raise RuntimeError('source failed')

    with self.assertRaisesRegex(RuntimeError, 'source failed'):
      checkpoints.write_checkpoint(str(self.path), variables())
    self.assertEmpty(os.listdir(self.path))

  def test_existing_step_is_kept_unless_overwritten(self):
    self.write()
    before = _tree(self.path)
    with self.assertRaisesRegex(errors.CheckpointError, 'exists. Choose'):
      self.write()
    self.assertEqual(_tree(self.path), before)
    with checkpoint_writer.Writer(str(self.path), overwrite=True) as writer:
      writer.add(_SCALE, np.ones(8, np.float32))
      self.assertEqual(
        _tree(self.step_dir),
        {n.removeprefix('checkpoint_00000000/'): d for n, d in before.items()},
      )
      writer.commit()
    read = checkpoints.read_variables(str(self.path))
    self.assertEqual(list(read), [_SCALE])
    self.assertEqual(os.listdir(self.path), ['checkpoint_00000000'])

  def test_leftovers_of_a_killed_writer_are_no_obstacle(self):
    checkpoint_writer.Writer(str(self.path)).add(_QKV, np.zeros(3, np.float32))
    self.write()
    self.assertEqual(os.listdir(self.path), ['checkpoint_00000000'])

  def test_same_variable_twice(self):
    one = np.zeros(1, np.float32)
    with self.assertRaisesRegex(errors.CheckpointError, 'added twice'):
      checkpoints.write_checkpoint(str(self.path), [('a', one), ('a', one)])

  def test_unwritable_directory(self):
    self.path.write_text('a file')
    with self.assertRaisesRegex(
      errors.CheckpointError, 'cannot be written: Not a directory'
    ):
      self.write()


if __name__ == '__main__':
  absltest.main()
