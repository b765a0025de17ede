import os

from absl.testing import absltest
import nltk.data

from harness.data import sentences
from harness.data.testing import punkt

_FILES = {
  'abbrev_types.txt': 'mr\nu.s\n',
  'collocations.tab': '',
  'ortho_context.tab': '',
  'sent_starters.txt': '',
}
_TEXT = 'Mr. Smith left.  He went home! The U.S. team stayed.'


class SentencesTest(absltest.TestCase):
  def _data(self, **changes: str) -> str:
    directory = self.create_tempdir().full_path
    folder = os.path.join(directory, 'tokenizers', 'punkt_tab', 'english')
    os.makedirs(folder)
    for name, text in (_FILES | changes).items():
      with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
        file.write(text)
    return directory

  def test_splits_by_the_parameters_that_are_given(self):
    before = list(nltk.data.path)
    splitter = sentences.Splitter('/nowhere', self._data())
    self.assertEqual(
      splitter.split(_TEXT),
      ['Mr. Smith left.', 'He went home!', 'The U.S. team stayed.'],
    )
    self.assertEqual(nltk.data.path, before)
    other = sentences.Splitter(self._data(**{'abbrev_types.txt': ''}))
    self.assertEqual(other.split(_TEXT)[0], 'Mr.')

  def test_tells_what_is_missing(self):
    with self.assertRaisesRegex(ValueError, 'downloader -d /nowhere punkt_tab'):
      sentences.Splitter('/nowhere')

  def test_tells_what_cannot_be_read(self):
    directory = self._data()
    os.unlink(
      os.path.join(
        directory, 'tokenizers', 'punkt_tab', 'english', 'abbrev_types.txt'
      )
    )
    with self.assertRaisesRegex(ValueError, 'english cannot be used'):
      sentences.Splitter(directory)

  def test_reads_what_was_trained(self):
    directory = self.create_tempdir().full_path
    splitter = sentences.Splitter(punkt.train(directory, 20))
    self.assertEqual(
      splitter.path, os.path.join(directory, 'tokenizers/punkt_tab/english')
    )
    self.assertEqual(
      splitter.split('The council met. It voted.'),
      ['The council met.', 'It voted.'],
    )


if __name__ == '__main__':
  absltest.main()
