import gzip
import hashlib
import pathlib

from absl.testing import absltest

from saxml_ext.aot import manifest as manifest_lib
from saxml_ext.aot.report.compiled import program_sets
from saxml_ext.aot.report.testing import hlo
from saxml_ext.engine import config as config_lib


class ProgramSetsTest(absltest.TestCase):
  def _set(self, kind: str = 'TPU v5 lite', with_hlo: bool = True):
    folder = pathlib.Path(self.create_tempdir().full_path)
    packed = gzip.compress(hlo.DECODE.encode())
    (folder / 'decode.hlo').write_bytes(packed)
    sha256 = hashlib.sha256(packed).hexdigest()
    file = manifest_lib.File('decode.hlo', sha256, len(packed))
    files = {manifest_lib.EXECUTABLE: file}
    if with_hlo:
      files[manifest_lib.OPTIMIZED_HLO] = file
    manifest = manifest_lib.Manifest(
      manifest_lib.FORMAT,
      manifest_lib.Configuration(
        manifest_lib.Serving('a.b.Model', {}),
        manifest_lib.Target('tpu', kind, 4, (2, 2, 1), (2, 2, 1)),
        {'jax': '1'},
        (1, 1, 4),
        config_lib.ModelConfig(2, 8, 2, 4, 32, 4, 100),
        config_lib.EngineConfig(1, num_slots=8, kv_dtype='int8'),
        {'head': manifest_lib.Leaf((100, 8), 'int8', (None, None))},
      ),
      {},
      (
        manifest_lib.Program(
          'decode 8', (), manifest_lib.Memory(5, 4, 1, 0, 0, 0), files
        ),
      ),
    )
    (folder / manifest_lib.NAME).write_text(manifest_lib.dumps(manifest))
    return folder

  def test_reads_what_was_built(self):
    found = program_sets.read(self._set())
    self.assertEqual(found.topology, 'v5e 2x2')
    self.assertEqual((found.slots, found.beams), (8, 4))
    self.assertEqual((found.weights, found.kv), ('int8', 'int8'))
    program = found.programs['decode 8']
    assert program.step is not None
    self.assertEqual(program.step.total_cycles, 434)
    self.assertEqual(program.memory['peak'], 5)

  def test_a_damaged_file_is_refused(self):
    folder = self._set()
    (folder / 'decode.hlo').write_bytes(b'')
    with self.assertRaisesRegex(ValueError, 'not what was built'):
      program_sets.read(folder)

  def test_sets_without_hlo_or_for_other_devices_are_refused(self):
    with self.assertRaisesRegex(ValueError, 'no optimized HLO'):
      program_sets.read(self._set(with_hlo=False))
    with self.assertRaisesRegex(ValueError, 'TPU v1'):
      program_sets.read(self._set('TPU v1'))


if __name__ == '__main__':
  absltest.main()
