"""Tests of the converter program."""

import contextlib
import io
import json
import os
import pathlib
import random
import resource
from typing import Any
from unittest import mock

from absl import flags
from absl.testing import absltest
from absl.testing import flagsaver
import numpy as np

from converters import convert_gptj_ckpt
from converters.convert import conversion
from converters.convert import random_weights
from converters.testing import killed_runs
from converters.testing import small_models
from converters.testing import unsynced
from saxml_ext.families import hf_config
from saxml_ext.families import layout
from saxml_ext.pax import checkpoint
from saxml_ext.pax import errors
from saxml_ext.pax.testing import checkpoints

_KILLS = 10


def _files(directory: str) -> dict[str, bytes]:
  root = pathlib.Path(directory)
  return {
    str(f.relative_to(root)): f.read_bytes()
    for f in root.rglob('*')
    if f.is_file()
  }


class ConvertTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self.enter_context(unsynced.files())
    root = self.create_tempdir().full_path
    self.base = small_models.save(os.path.join(root, 'hf'))
    self.pax = os.path.join(root, 'deep', 'pax')

  def run_main(self, **changes) -> tuple[int, str, str]:
    """Runs the program; returns its exit status, output and errors."""
    values = {'base': self.base, 'pax': self.pax} | changes
    out, err = io.StringIO(), io.StringIO()
    status: Any = 0
    with (
      flagsaver.flagsaver(**values),
      contextlib.redirect_stdout(out),
      contextlib.redirect_stderr(err),
    ):
      try:
        convert_gptj_ckpt.main(['convert_gptj_ckpt'])
      except SystemExit as e:
        status = e.code
    return status, out.getvalue(), err.getvalue()

  def test_converts_all_variables(self):
    with open(os.path.join(self.base, 'tokenizer.json'), 'w') as f:
      f.write('{"version": "1.0"}')
    status, out, _ = self.run_main()
    self.assertEqual(status, 0)
    self.assertIn(f'Wrote {self.pax}/checkpoint_00000000', out)
    self.assertCountEqual(
      os.listdir(self.pax),
      ['checkpoint_00000000', 'gptj_config.json', 'tokenizer.json'],
    )
    variables = checkpoints.read_variables(self.pax)
    self.assertLen(variables, 21)
    np.testing.assert_array_equal(
      variables['params.lm.final_ln.bias'],
      small_models.state_dict()['transformer.ln_f.bias'],
    )

  def test_description_is_written(self):
    self.run_main(dtype='bfloat16')
    with open(os.path.join(self.pax, 'gptj_config.json')) as f:
      self.assertEqual(
        json.load(f),
        {
          'rotary_dim': 4,
          'layer_norm_epsilon': 1e-5,
          'max_positions': 128,
          'bos_token_id': 3,
          'eos_token_id': 4,
          'pad_token_id': 4,
          'num_layers': 2,
          'model_dim': 16,
          'num_heads': 2,
          'head_dim': 8,
          'hidden_dim': 64,
          'vocab_size': 11,
          'dtype': 'bfloat16',
          'num_parameters': sum(
            value.size for value in small_models.state_dict().values()
          ),
        },
      )
    specs = checkpoint.Reader(self.pax).specs
    self.assertEqual({s.dtype for s in specs.values()}, {'bfloat16'})

  def test_same_input_gives_same_bytes(self):
    self.run_main()
    first = _files(self.pax)
    again = os.path.join(os.path.dirname(self.pax), 'again')
    self.run_main(pax=again)
    self.assertEqual(_files(again), first)

  def test_writes_into_an_existing_empty_directory(self):
    os.makedirs(self.pax)
    self.assertEqual(self.run_main()[0], 0)

  def test_relative_paths_start_at_the_working_directory(self):
    start = os.path.dirname(self.base)
    with mock.patch.dict(os.environ, {'BUILD_WORKING_DIRECTORY': start}):
      self.assertEqual(self.run_main(base='hf', pax='out')[0], 0)
    self.assertIn('checkpoint_00000000', os.listdir(f'{start}/out'))

  def test_flags_of_the_published_tool_are_accepted(self):
    with flagsaver.flagsaver():
      flags.FLAGS(['convert', '--base-model-path=a', '--pax-model-path=b'])
      self.assertEqual((flags.FLAGS.base, flags.FLAGS.pax), ('a', 'b'))

  def no_space(self) -> str:
    """Runs the program while files cannot grow; returns its errors."""
    # Writes beyond a file size limit fail, almost like writes to a full disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
      status, _, err = self.run_main()
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    self.assertEqual(status, 1)
    return err

  def test_full_disk_leaves_no_checkpoint(self):
    self.assertRegex(
      self.no_space(),
      r'variable mdl_vars\S+ of float32\S+.* cannot be written'
      r'.*File too large.*Free space[^$]*command with --resume',
    )
    with self.assertRaisesRegex(errors.CheckpointError, 'no checkpoint_<step>'):
      checkpoint.Reader(self.pax)

  def test_resumed_run_gives_the_same_bytes(self):
    self.run_main()
    expected = _files(self.pax)
    self.pax += '2'
    self.no_space()
    status, out, _ = self.run_main(resume=True)
    self.assertEqual(status, 0)
    self.assertIn('GB of an earlier run', out)
    self.assertEqual(_files(self.pax), expected)
    self.assertEqual(self.run_main(resume=True)[0], 0)

  def test_resume_rewrites_a_damaged_variable(self):
    self.run_main()
    expected = _files(self.pax)
    self.pax += '2'
    os.makedirs(f'{self.pax}/gptj_config.json')  # Fails behind the last one.
    self.assertEqual(self.run_main()[0], 1)
    os.rmdir(f'{self.pax}/gptj_config.json')
    largest = max(
      (path for path in pathlib.Path(self.pax).rglob('*') if path.is_file()),
      key=lambda path: path.stat().st_size,
    )
    data = bytearray(largest.read_bytes())
    data[-1] ^= 1
    largest.write_bytes(data)
    self.assertEqual(self.run_main(resume=True)[0], 0)
    self.assertEqual(_files(self.pax), expected)

  def test_partial_output_is_removed_without_resume(self):
    self.no_space()
    status, _, err = self.run_main()
    self.assertEqual(status, 0)
    self.assertRegex(err, r'Removed \S+tmp-0, the files of an interrupted run')

  def test_changed_source_is_not_resumed(self):
    self.no_space()
    small_models.save(self.base, small_models.state_dict(seed=1))
    status, _, err = self.run_main(resume=True)
    self.assertEqual(status, 1)
    self.assertIn('belongs to another conversion', err)

  def test_read_only_destination_is_reported(self):
    target = os.path.join(os.path.dirname(self.base), 'file')
    with open(target, 'w'):
      pass
    status, _, err = self.run_main(pax=f'{target}/pax')
    self.assertEqual(status, 1)
    self.assertIn('cannot be written: Not a directory', err)

  def test_verify_finds_no_difference(self):
    self.assertIn(
      f'All 21 variables match {self.base}.',
      self.run_main(verify=True)[1],
    )
    # The source has other values, but the manifest now names it as the source
    # of the checkpoint. So --resume accepts it.
    manifest = f'{self.pax}/checkpoint_00000000/manifest.json'
    small_models.save(self.base, small_models.state_dict(seed=1))
    made_of = conversion.source_record(
      [f'{self.base}/config.json', f'{self.base}/model.safetensors'],
      dtype='float32',
    )
    with open(manifest) as f:
      document = json.load(f) | {'source': made_of.document()}
    with open(manifest, 'w') as f:
      json.dump(document, f)
    status, _, err = self.run_main(verify=True, resume=True)
    self.assertEqual(status, 1)
    self.assertRegex(err, r'variable params\S+ .*: differs')

  def test_bad_tensor_leaves_no_checkpoint(self):
    tensors = small_models.state_dict()
    tensors['lm_head.bias'][2] = np.nan
    small_models.save(self.base, tensors)
    status, _, err = self.run_main()
    self.assertEqual(status, 1)
    self.assertIn('tensor lm_head.bias has the value nan at [2]', err)
    self.assertEmpty(_files(self.pax))

  def test_existing_checkpoint_is_kept_by_default(self):
    self.run_main()
    before = _files(self.pax)
    status, _, err = self.run_main(dtype='bfloat16')
    self.assertEqual(status, 1)
    self.assertIn('exists. Choose another directory or set --overwrite', err)
    self.assertEqual(_files(self.pax), before)
    self.assertEqual(self.run_main(dtype='bfloat16', overwrite=True)[0], 0)
    self.assertEqual(
      checkpoint.Reader(self.pax).specs['params.lm.final_ln.bias'].dtype,
      'bfloat16',
    )

  def test_failed_overwrite_keeps_the_old_checkpoint(self):
    self.run_main()
    before = _files(self.pax)
    tensors = small_models.state_dict()
    tensors['lm_head.bias'][2] = np.nan
    small_models.save(self.base, tensors)
    self.assertEqual(self.run_main(overwrite=True)[0], 1)
    self.assertEqual(_files(self.pax), before)


class KilledRunsTest(absltest.TestCase):
  """Kills a conversion with SIGKILL at random points."""

  def test_ten_killed_runs_give_the_same_bytes(self):
    root = self.create_tempdir().full_path
    base, pax = os.path.join(root, 'hf'), os.path.join(root, 'pax')
    again = os.path.join(root, 'again')
    shape = hf_config.HFConfig(12, 128, 4, 512, 1000, rotary_dim=16)
    random_weights.write(base, shape, 'bin', 3)
    variables = len(layout.variables(shape))

    def command(target):
      return 'convert_gptj_ckpt', f'--base={base}', f'--pax={target}'

    killed_runs.run(*command(pax))
    finished = killed_runs.kill(
      lambda: killed_runs.start(*command(again), '--resume'),
      again,
      variables,
      _KILLS,
      random.Random(0),
      0.05,
    )
    last = killed_runs.run(*command(again), '--resume')
    self.assertLen(finished, _KILLS)
    self.assertEqual(finished, sorted(finished))
    self.assertGreater(finished[-1], finished[0])
    self.assertIn('of an earlier run', last.output)
    self.assertEqual(killed_runs.digests(again), killed_runs.digests(pax))

  def test_killed_run_leaves_no_checkpoint(self):
    root = self.create_tempdir().full_path
    base, pax = os.path.join(root, 'hf'), os.path.join(root, 'pax')
    shape = hf_config.HFConfig(12, 128, 4, 512, 1000, rotary_dim=16)
    random_weights.write(base, shape)
    with killed_runs.start(
      'convert_gptj_ckpt', f'--base={base}', f'--pax={pax}'
    ) as process:
      while not os.path.isdir(pax) and process.poll() is None:
        pass
      process.kill()
    with self.assertRaisesRegex(errors.CheckpointError, 'no checkpoint_<step>'):
      checkpoint.Reader(pax)


if __name__ == '__main__':
  absltest.main()
