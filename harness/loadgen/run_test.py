import os

from absl import flags
from absl.testing import absltest
from absl.testing import flagsaver
import msgspec

from harness.benchmarks import gptj
from harness.loadgen import run as run_lib
from harness.rules import rounds
from saxml_ext.common import files


class _System(  # type: ignore[call-arg]
  msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag='a'
):
  checkpoint: str = ''
  device: str = 'cpu'
  overrides: dict[str, str] = {}


class _Other(  # type: ignore[call-arg]
  msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag='b'
):
  """A system of another program."""


_RUN = run_lib.Run(
  benchmark=gptj.GPTJ.name,
  scenario=rounds.OFFLINE,
  mode=run_lib.ACCURACY,
  user_conf='user.conf',
  output_dir='logs',
  concurrency=3,
  silence_secs=7.0,
  system=_System('/model', overrides={'BATCH_SIZE': '8'}),
  samples=run_lib.Samples('eval.json', 'tokenizer.json', 9, 2),
  loadgen_attributes={'qsl_rng_seed': 2**64 - 1},
)


class RunTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._path = os.path.join(self.create_tempdir().full_path, run_lib.FILE)

  def test_the_process_of_loadgen_reads_what_the_job_wrote(self):
    files.write_json(self._path, _RUN)
    self.assertEqual(run_lib.read(self._path, _System), _RUN)

  def test_damaged_and_foreign_files_are_refused(self):
    files.write_json(self._path, _RUN)
    with open(self._path, encoding='utf-8') as file:
      text = file.read()
    for changed, kind, message in (
      (text[:40], _System, 'run.json is not JSON: Input data was trunc'),
      (text, _Other, r"Invalid value 'a' - at `\$.system.type`"),
      ('{"id": 1}', _System, 'unknown field `id`'),
      ('{}', _System, 'missing required field `benchmark`'),
      (text.replace('"mode"', '"mod"'), _System, 'unknown field `mod`'),
      (text.replace('7.0', '"x"'), _System, r'at `\$.silence_secs`'),
    ):
      with open(self._path, 'w', encoding='utf-8') as file:
        file.write(changed)
      with self.assertRaisesRegex(ValueError, message):
        run_lib.read(self._path, kind)
    with self.assertRaises(FileNotFoundError):
      run_lib.read('/nowhere/run.json', _System)


class FlagsTest(absltest.TestCase):
  def test_fields_have_the_values_of_their_flags(self):
    with flagsaver.flagsaver(
      checkpoint='~/model', override=['A=1', 'B', 'C=x=y']
    ):
      made = run_lib.fill(_System, overrides=run_lib.overrides())
    self.assertEqual(
      made,
      _System(
        os.path.expanduser('~/model'),
        overrides={'A': '1', 'B': '', 'C': 'x=y'},
      ),
    )
    self.assertEqual(run_lib.fill(_System), _System())

  def test_a_field_without_default_is_none_without_its_flag(self):
    class Needs(msgspec.Struct):
      model_path: str

    self.assertIsNone(run_lib.fill(Needs).model_path)

  def test_a_program_keeps_the_flags_of_its_system(self):
    with flagsaver.flagsaver():
      saved = {name: flags.FLAGS[name] for name in flags.FLAGS}
      try:
        run_lib.keep(_System, 'mode')
        kept = {
          flag.name
          for flag in flags.FLAGS.flags_by_module_dict()[run_lib.__name__]
          if flag.name in flags.FLAGS
        }
      finally:
        for name, flag in saved.items():
          if name not in flags.FLAGS:
            flags.FLAGS[name] = flag
    self.assertEqual(kept, {'checkpoint', 'device', 'override', 'mode'})


if __name__ == '__main__':
  absltest.main()
