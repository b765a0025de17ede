import contextlib
import io
import json
import os

from absl.testing import absltest
from absl.testing import flagsaver
import numpy as np
import tokenizers

from harness.scores import accuracy
from saxml_ext.common import program


class AccuracyTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    vocab = {'<eos>': 0, 'one': 1, 'two': 2}
    tokenizer = tokenizers.Tokenizer(
      tokenizers.models.WordLevel(vocab, unk_token='<eos>')
    )
    tokenizer.save(self._path('tokenizer.json'))
    article = {'instruction': 'i', 'input': 'a', 'output': 'one two'}
    self._write('eval.json', [article])
    data = np.asarray([1], np.int32).tobytes().hex()
    self._write('log.json', [{'seq_id': 0, 'qsl_idx': 0, 'data': data}])

  def _path(self, name: str) -> str:
    return os.path.join(self._dir, name)

  def _write(self, name: str, content: object) -> None:
    with open(self._path(name), 'w', encoding='utf-8') as file:
      json.dump(content, file)

  def _run(self, **values: str | None) -> str:
    values = {
      'accuracy_log': self._path('log.json'),
      'dataset': self._path('eval.json'),
      'tokenizer_path': self._path('tokenizer.json'),
      'dtype': 'int32',
    } | values
    printed = io.StringIO()
    with flagsaver.flagsaver(**values), contextlib.redirect_stdout(printed):
      accuracy.main(['accuracy'])
    return printed.getvalue()

  def test_prints_and_writes_the_same_line(self):
    line = self._run()
    self.assertEqual(
      line,
      "{'rouge1': 66.6667, 'rouge2': 0.0, 'rougeL': 66.6667, 'gen_len': 3,"
      " 'gen_num': 1}\n",
    )
    with open(self._path('accuracy.txt'), encoding='utf-8') as file:
      self.assertEqual(file.read(), line)

  def test_tells_what_cannot_be_used(self):
    with self.assertRaisesRegex(SystemExit, 'accuracy: .*not a multiple of'):
      self._run(dtype='int64')
    with self.assertRaisesRegex(SystemExit, 'accuracy: .*missing.json'):
      self._run(accuracy_log=self._path('missing.json'))
    with self.assertRaisesRegex(SystemExit, 'eval.json needs --tokenizer_path'):
      self._run(tokenizer_path=None)
    article = {'instruction': 'i', 'input': 'a', 'output': 'b'}
    self._write('eval.json', [article | {'tok_input': [2, 1]}])
    with self.assertRaisesRegex(SystemExit, 'accuracy: sample 0: .*another to'):
      self._run()

  def test_takes_no_arguments(self):
    words = ['accuracy', '--accuracy_log=x', 'extra']
    with flagsaver.flagsaver():
      with self.assertRaisesRegex(SystemExit, "'extra'"):
        program.run(accuracy.main, words)


if __name__ == '__main__':
  absltest.main()
