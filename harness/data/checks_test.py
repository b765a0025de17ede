import hashlib
import json
import os

from absl.testing import absltest
import tokenizers

from harness.data import checks
from harness.data import cnn_dailymail


class ChecksTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _write(self, name: str, content: object) -> str:
    path = os.path.join(self._dir, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
      file.write(content if isinstance(content, str) else json.dumps(content))
    return path

  def test_articles_are_counted_and_their_sum_is_told(self):
    entries = [
      cnn_dailymail.entry({'article': 'a', 'highlights': 'b', 'id': 'c'})
    ]
    path = self._write('eval.json', entries)
    with open(path, 'rb') as file:
      sha256 = hashlib.sha256(file.read()).hexdigest()
    verdict = checks.articles(path, 1)
    self.assertIn(f'1 articles, SHA-256 {sha256}', verdict)
    with self.assertRaisesRegex(
      ValueError, 'has 1 articles, but .* file has 2'
    ):
      checks.articles(path, 2)
    path = self._write('eval.json', [entries[0] | {'instruction': 'Sum up:'}])
    with self.assertRaisesRegex(
      ValueError, "Entry 0 .* 'Sum up:', but the offic"
    ):
      checks.articles(path, 1)

  def test_squad_is_known_by_its_sum_and_told_by_its_content(self):
    content = {
      'version': 'v2.0',
      'data': [{'paragraphs': [{'qas': [1, 2]}, {'qas': [3]}]}],
    }
    path = self._write('dev.json', content)
    md5 = checks.digest(path, 'md5')
    self.assertIn(f'MD5 {md5}, as published', checks.squad(path, md5))
    with self.assertRaisesRegex(
      ValueError, f'MD5 {md5}, .* 0123[.] .* It has 3 questions of version v2.0'
    ):
      checks.squad(path, '0123')
    for other in ('<html>', '[]', '{"data": 1}'):
      path = self._write('dev.json', other)
      with self.assertRaisesRegex(ValueError, 'not a file of SQuAD'):
        checks.squad(path, '0123')

  def test_vocabulary(self):
    path = self._write('vocab.txt', '[PAD]\n[CLS]\n')
    verdict = checks.vocabulary(path, checks.digest(path, 'md5'))
    self.assertIn('30522 words', verdict)
    with self.assertRaisesRegex(
      ValueError, 'It has 2 words, .* file has 30522'
    ):
      checks.vocabulary(path, '0123')

  def test_tokenizer_of_gptj(self):
    vocab = {'Hello': 15496, ' world': 995, '<|endoftext|>': 50256}
    # Each id is used once. If two words had one id, only one of them would be
    # saved.
    others = set(range(50257)) - set(vocab.values())
    vocab |= {f'word{n}': n for n in others}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(
      ' world', 'isolated'
    )
    path = os.path.join(self._dir, 'tokenizer.json')
    tokenizer.save(path)
    self.assertIn('tokenizer of', checks.gptj_tokenizer(self._dir))
    small = tokenizers.Tokenizer(
      tokenizers.models.WordLevel({'Hello world': 1}, unk_token='?')
    )
    small.save(path)
    with self.assertRaisesRegex(
      ValueError, r"'Hello world' becomes \[1\] instead of \[15496, 995\]"
    ):
      checks.gptj_tokenizer(self._dir)

  def test_checkpoint_needs_all_of_its_files(self):
    model = os.path.join(self._dir, 'm')
    self._write('m/config.json', {'model_type': 'gptj', 'n_layer': 28})
    with self.assertRaisesRegex(ValueError, 'but no weight files'):
      checks.gptj_checkpoint(model)
    self._write('m/model.safetensors', 'x' * 1000)
    self.assertIn('in 1 files', checks.gptj_checkpoint(model))
    self._write(
      'm/pytorch_model.bin.index.json',
      {'weight_map': {'a': 'm-1.bin', 'b': 'm-2.bin', 'c': 'm-1.bin'}},
    )
    os.unlink(os.path.join(model, 'model.safetensors'))
    self._write('m/m-1.bin', 'x')
    with self.assertRaisesRegex(ValueError, 'lacks m-2.bin, one of its 2'):
      checks.gptj_checkpoint(model)
    self._write('m/m-2.bin', 'x')
    self.assertIn('in 2 files', checks.gptj_checkpoint(model))

  def test_other_models_are_told(self):
    self._write('m/config.json', {'model_type': 'gptj', 'n_layer': 2})
    with self.assertRaisesRegex(ValueError, "'gptj' with 2 layers"):
      checks.gptj_checkpoint(os.path.join(self._dir, 'm'))
    self._write('m/config.json', {'model_type': 'bert'})
    with self.assertRaisesRegex(
      ValueError, 'config.json is not a configuration of GPT-J'
    ):
      checks.gptj_checkpoint(os.path.join(self._dir, 'm'))


if __name__ == '__main__':
  absltest.main()
