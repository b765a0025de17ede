import contextlib
import io
import json
import os

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver

from harness.description import description as description_lib
from harness.description import system


class SystemTest(absltest.TestCase):
  def _run(self, *words: str, **settings) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    with (
      flagsaver.flagsaver(**settings),
      contextlib.redirect_stdout(out),
      contextlib.redirect_stderr(err),
    ):
      system.main(['system', *words])
    return out.getvalue(), err.getvalue()

  def test_preset_is_completed_by_flags(self):
    path = self.create_tempfile(content='cooling: air\nhw_notes: a\n').full_path
    out, err = self._run(
      preset='tpu_v5e_x4',
      system_description=path,
      submitter='Me',
      division='open',
      hw_notes='b',
      set=['host_networking=100 Gb Ethernet'],
    )
    values = json.loads(out)
    self.assertContainsSubset(description_lib.REQUIRED, values)
    self.assertEqual(values['accelerator_model_name'], 'TPU v5e')
    self.assertEqual(values['submitter'], 'Me')
    self.assertEqual(values['cooling'], 'air')
    self.assertEqual(values['hw_notes'], 'b')
    self.assertEqual(values['host_networking'], '100 Gb Ethernet')
    self.assertIn(
      'host_networking_topology: the connection of the machines', err
    )
    self.assertNotIn('submitter', err)
    self.assertNotIn('cooling', err)

  def test_a_complete_description_has_no_complaint(self):
    settings = [
      f'{name}={"1" if name in description_lib.COUNTS else "N/A"}'
      for name in description_lib.REQUIRED
    ]
    settings = [
      word
      for word in settings
      if not word.startswith(('division=', 'status=', 'system_type='))
    ]
    _, err = self._run(
      set=settings, division='open', status='rdi', system_type='edge'
    )
    self.assertEqual(err, '')

  def test_written_to_a_file(self):
    path = os.path.join(self.create_tempdir().full_path, 'mine.json')
    out, _ = self._run(out=path, submitter='Me')
    self.assertEqual(out, f'wrote {path}\n')
    with open(path, encoding='utf-8') as file:
      self.assertEqual(json.load(file)['submitter'], 'Me')

  def test_presets_and_keys(self):
    out, _ = self._run('presets')
    self.assertRegex(out, 'tpu_v5e_x4 +a Cloud TPU')
    out, _ = self._run('keys')
    self.assertLen(out.splitlines(), len(description_lib.ALL))
    self.assertIn('status (not empty): the availability: available', out)

  def test_cuda(self):
    out, _ = self._run('cuda', out='json')
    self.assertContainsSubset(('driver', 'cudnn', 'devices'), json.loads(out))

  def test_mistakes_are_reported(self):
    for settings, message in (
      ({'preset': 'tpu'}, "system: no system 'tpu' is known"),
      ({'set': ['cooling']}, 'must have the form KEY=VALUE'),
      ({'set': ['colling=air']}, 'did you mean cooling'),
      ({'system_description': '/no/file'}, '/no/file'),
      ({'out': '/no/directory/x.json'}, '/no/directory'),
    ):
      with self.assertRaisesRegex(SystemExit, message):
        self._run(**settings)
    with self.assertRaises(app.UsageError):
      self._run('gpu')


if __name__ == '__main__':
  absltest.main()
