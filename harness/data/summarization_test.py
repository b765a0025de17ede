import json
import os

from absl.testing import absltest
import tokenizers

from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.data import samples as samples_lib
from harness.data import summarization
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib


class SummarizationTest(absltest.TestCase):
  def _load(self, **changes) -> summarization.Summarization:
    directory = self.create_tempdir().full_path
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: index for index, letter in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
      add_prefix_space=False
    )
    tokenizer.save(os.path.join(directory, 'tokenizer.json'))
    articles = [
      {'instruction': 'i', 'input': f'article {n}', 'output': f'summary {n}'}
      for n in range(3)
    ]
    with open(
      os.path.join(directory, 'eval.json'), 'w', encoding='utf-8'
    ) as file:
      json.dump(articles, file)
    values = {
      'dataset_path': os.path.join(directory, 'eval.json'),
      'tokenizer_path': os.path.join(directory, 'tokenizer.json'),
      'max_input_length': 1000,
      'sample_count': 0,
      'benchmark': gptj.GPTJ.name,
    }
    return summarization.load(samples_lib.Samples(**(values | changes)))

  def test_prompts_are_ids_cut_at_the_limit(self):
    task = self._load(max_input_length=5, sample_count=2)
    self.assertEqual(task.highlights, ['summary 0', 'summary 1'])
    self.assertLen(task.prompts, 2)
    ids = [int(word) for word in task.prompts[0].split(',')]
    self.assertEqual(
      ids, task.tokenizer.encode(task.articles[0].prompt).ids[:5]
    )

  def test_a_llama_without_an_end_id_is_refused(self):
    with self.assertRaisesRegex(
      ValueError, 'tokenizer.json has no special tokens.*--tokenizer_path'
    ):
      self._load(benchmark=llama.LLAMA.name)

  def test_logged_answer_is_as_in_the_reference(self):
    for tokens, benchmark, expected, dtype in (
      ([1, 2], gptj.GPTJ, [1, 2], 'int64'),
      ([1, 2, 0, 0], gptj.GPTJ, [1, 2], 'int64'),
      ([1, 2], llama.LLAMA, [1, 2], 'int32'),
      ([1, 2, 0], llama.LLAMA, [1, 2, 0], 'int32'),
      ([1, 2, 0, 0, 9], llama.LLAMA_EDGE, [1, 2, 0], 'int32'),
      ([1, 9, 0], llama.LLAMA, [1, 9], 'int32'),
    ):
      data = summarization.logged(tokens, {0, 9}, benchmark)
      self.assertEqual(data.tolist(), expected)
      self.assertEqual(data.dtype, dtype)

  def test_prompts_of_llama_are_never_cut(self):
    own = {'tokenizer_path': llama.BUNDLE.tokenizer}
    task = self._load(benchmark=llama.LLAMA.name, **own)
    longest = len(task.prompt_ids[0])
    for benchmark in (llama.LLAMA.name, llama.LLAMA_EDGE.name):
      self._load(benchmark=benchmark, max_input_length=longest, **own)
      with self.assertRaisesRegex(
        ValueError,
        f'sample 0 has a prompt of {longest} tokens, the longest of 3 above the'
        f' limit {longest - 1}. Llama cuts no .*--max_input_length',
      ):
        self._load(benchmark=benchmark, max_input_length=longest - 1, **own)

  def _official(self, tokenizer_path: str) -> str:
    """Writes a file with the token ids that a tokenizer makes."""
    tokenizer = tokenizer_lib.load(tokenizer_path)
    path = os.path.join(self.create_tempdir().full_path, 'cnn_eval.json')
    entries = []
    for number in range(2):
      article = dataset.Article('', f'News {number}', 'Highlights')
      prompt = article.filled(dataset.LLAMA_TEMPLATE)
      entries.append(
        {
          'instruction': {'llama': dataset.LLAMA_TEMPLATE},
          'input': article.input,
          'tok_input': tokenizer.encode(prompt).ids,
          'output': article.output,
        }
      )
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(entries, file)
    return path

  def test_token_ids_of_llamas_file(self):
    ours = llama.BUNDLE.tokenizer
    path = self._official(ours)
    values = {'dataset_path': path, 'tokenizer_path': ours}
    task = self._load(benchmark=llama.LLAMA_EDGE.name, **values)
    first = task.articles[0].tok_input
    self.assertEqual(task.prompts[0], ','.join(map(str, first)))
    with self.assertRaisesRegex(ValueError, 'sample 0 has a prompt of .* 9'):
      self._load(benchmark=llama.LLAMA.name, max_input_length=9, **values)
    with self.assertRaisesRegex(ValueError, 'a Llama, but the model is a GPT-'):
      self._load(**values)
    values['tokenizer_path'] = gptj.BUNDLE.tokenizer
    with self.assertRaisesRegex(ValueError, 'the file is for another|The file'):
      self._load(benchmark=llama.LLAMA.name, **values)

  def test_takes_all_articles_by_itself(self):
    self.assertLen(self._load().articles, 3)

  def test_an_answer_ends_before_its_first_end_id(self):
    tokenizer = tokenizers.Tokenizer(
      tokenizers.models.WordLevel({'<eos>': 0, 'one': 1}, unk_token='<eos>')
    )
    self.assertEqual(summarization.end_ids(tokenizer), frozenset())
    tokenizer.add_special_tokens(['<eos>'])
    ends = summarization.end_ids(tokenizer)
    self.assertEqual(ends, {0})
    for answer in ([1, 1], [1, 1, 0], [1, 1, 0, 0, 0]):
      self.assertEqual(summarization.until_end(answer, ends), (1, 1))
    # All ids after the end id are removed.
    self.assertEqual(summarization.until_end([1, 0, 1], ends), (1,))
    self.assertEqual(summarization.until_end([0, 1], ends), ())


def _lengths(**changes) -> list[int]:
  values = {'sample_count': 40, 'benchmark': gptj.GPTJ.name}
  samples = samples_lib.Samples(**(values | changes))
  task = summarization.load_beside(gptj.BUNDLE.model, 600, 300, samples)
  assert task.tokenizer.get_vocab_size() == 4096
  return [len(ids) for ids in task.prompt_ids]


class LoadBesideTest(absltest.TestCase):
  def test_prompts_are_cut_where_the_model_is_meant_to(self):
    self.assertEqual(max(_lengths()), 300)

  def test_prompts_are_cut_at_the_flag(self):
    self.assertEqual(max(_lengths(max_input_length=20)), 20)
    self.assertLen(_lengths(sample_count=3), 3)

  def test_more_than_the_model_takes_is_refused(self):
    with self.assertRaisesRegex(
      ValueError, '=601 is above the limit 600.*Lower it'
    ):
      _lengths(max_input_length=601)

  def test_files_of_the_user(self):
    with self.assertRaisesRegex(ValueError, '/none/tokenizer.json'):
      _lengths(tokenizer_path='/none/tokenizer.json')
    with self.assertRaisesRegex(OSError, '/none/eval.json'):
      _lengths(dataset_path='/none/eval.json')

  def test_without_a_model_both_are_needed(self):
    with self.assertRaisesRegex(ValueError, 'Pass --tokenizer_path and --max'):
      summarization.load(samples_lib.Samples(max_input_length=512))


if __name__ == '__main__':
  absltest.main()
