import contextlib
import io
import os

from absl import app
from absl import flags
from absl.testing import absltest
from absl.testing import flagsaver

from harness import main
from harness.pages import choices
from harness.pages.cli import compose
from saxml_ext.common.pages.testing import reading


class ComposeTest(absltest.TestCase):
  def _run(self, output, argv=('compose',)):
    printed = io.StringIO()
    with flagsaver.flagsaver(output=output):
      with contextlib.redirect_stdout(printed):
        compose.main(argv)
    self.assertIn(output, printed.getvalue())
    with open(output, encoding='utf-8') as file:
      return reading.Page(file.read())

  def test_every_choice_is_on_the_page(self):
    path = os.path.join(self.create_tempdir().full_path, 'compose.html')
    page = self._run(path)
    table = page.data['table']
    self.assertEqual(
      [choice['flag'] for choice in table['choices']],
      [choice.flag for choice in choices.CHOICES],
    )
    for choice in choices.CHOICES:
      self.assertIn(f'--{choice.flag}', page.texts)
      if choice.kind == 'one':
        self.assertContainsSubset(choice.options, page.options)
      ids = [f'flag-{choice.flag}']
      if choice.kind == 'many':
        ids = [f'flag-{choice.flag}-{option}' for option in choice.options]
      self.assertContainsSubset(ids, page.ids)
    self.assertIn(choices.command(choices.defaults()), page.texts)

  def test_every_flag_is_one_of_the_program(self):
    self.assertEqual(choices.PROGRAM, '//harness:main')
    self.assertTrue(main.__file__)  # The import defines its flags.
    for choice in choices.CHOICES:
      self.assertIn(choice.flag, flags.FLAGS)
      if choice.flag in ('round', 'execution_mode'):
        parser = flags.FLAGS[choice.flag].parser
        self.assertCountEqual(choice.options, parser.enum_values)

  def test_page_loads_no_other_file(self):
    path = os.path.join(self.create_tempdir().full_path, 'compose.html')
    page = self._run(path)
    self.assertEqual(page.outside, [])
    self.assertLen(page.scripts, 1)
    self.assertLess(os.path.getsize(path), 100_000)

  def test_unwritable_output_is_reported(self):
    with self.assertRaisesRegex(SystemExit, 'compose: .*Is a directory'):
      self._run(self.create_tempdir().full_path)

  def test_arguments_are_refused(self):
    with self.assertRaisesRegex(app.UsageError, "'more'"):
      self._run('/nowhere', ['compose', 'more'])


if __name__ == '__main__':
  absltest.main()
