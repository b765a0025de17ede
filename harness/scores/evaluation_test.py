import contextlib
import functools
import io
import json
import os
import re
from unittest import mock

from absl import app
from absl.testing import absltest
from absl.testing import flagsaver
from absl.testing import parameterized
import numpy as np
from rouge_score import rouge_scorer
import tokenizers

from harness.benchmarks import gptj
from harness.benchmarks import llama
from harness.data import sentences
from harness.data.testing import punkt
from harness.scores import evaluation
from saxml_ext.common.testing import modules
from saxml_ext.evaluation import dataset
from saxml_ext.evaluation import tokenizer as tokenizer_lib

# The output of MLCommons' evaluation.py for the recorded answers of the bundled
# Llama, with Punkt trained on all bundled articles. It was run with nltk 3.10.4
# and the rouge metric of evaluate 0.4.6.
_OFFICIAL_LLAMA = {
  'rouge1': 53.7677,
  'rouge2': 30.6933,
  'rougeL': 47.1719,
  'rougeLsum': 48.5495,
  'gen_len': 101756,
  'gen_num': 512,
}

# The patterns of the official submission checker for each figure, up to v5.1.
_CHECKED = (
  ('rouge1', r".*'rouge1':\s([\d.]+).*"),
  ('rouge2', r".*'rouge2':\s([\d.]+).*"),
  ('rougeL', r".*'rougeL':\s([\d.]+).*"),
  ('gen_len', r".*'gen_len':\s([\d.]+).*"),
)


class EvaluationTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path
    with open(gptj.BUNDLE.reference, encoding='utf-8') as file:
      self._record = json.load(file)
    self._log = self._write_log('log.json', self._record['tokens'], 'int64')
    self.enter_context(mock.patch.dict(os.environ))
    os.environ.pop('NLTK_DATA', None)

  def _write_log(self, name: str, answers, dtype: str, again: int = 0) -> str:
    path = os.path.join(self._dir, name)
    entries = [
      {
        'seq_id': i,
        'qsl_idx': i,
        'data': np.asarray(tokens, dtype).tobytes().hex(),
      }
      for i, tokens in enumerate(answers)
    ]
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(entries + entries[:again], file)
    return path

  @functools.cached_property
  def _punkt(self) -> str:
    return punkt.train(os.path.join(self._dir, 'nltk'), 40)

  def _run(self, **values) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    values = {
      'mlperf_accuracy_file': self._log,
      'cache_dir': os.path.join(self._dir, 'cache'),
    } | values
    with (
      flagsaver.flagsaver(**values),
      contextlib.redirect_stdout(out),
      contextlib.redirect_stderr(err),
    ):
      evaluation.main(('evaluation',))
    return out.getvalue(), err.getvalue()

  def test_prints_the_recorded_figures_of_the_reference(self):
    out, err = self._run()
    names = ('rouge1', 'rouge2', 'rougeL', 'gen_len', 'gen_num')
    figures = {name: self._record[name] for name in names}
    self.assertEqual(out, f'\nResults\n\n{figures}\n')
    self.assertIn('rougeLsum is omitted', err)
    for name, pattern in _CHECKED:
      match = re.match(pattern, out.splitlines()[-1])
      self.assertEqual(float(match[1]), self._record[name])

  def test_equals_the_references_sums_with_sentences(self):
    count = 60
    log = self._write_log('60.json', self._record['tokens'][:count], 'int32')
    out, err = self._run(
      mlperf_accuracy_file=log, dtype='int32', nltk_data=self._punkt
    )
    self.assertIn(f'answers to {count} of 512 articles', err)
    # This is the reference's own conversion from the texts to the line, with
    # the same Punkt.
    splitter = sentences.Splitter(self._punkt)
    tokenizer = tokenizer_lib.load(gptj.BUNDLE.tokenizer)
    articles = dataset.load_articles(gptj.BUNDLE.dataset, count)
    answers = tokenizer.decode_batch(self._record['tokens'][:count])
    answers = ['\n'.join(splitter.split(text.strip())) for text in answers]
    targets = ['\n'.join(splitter.split(a.output.strip())) for a in articles]
    names = ['rouge1', 'rouge2', 'rougeL', 'rougeLsum']
    scorer = rouge_scorer.RougeScorer(names, use_stemmer=True)
    scores = [scorer.score(t, a) for t, a in zip(targets, answers)]
    figures = {
      name: float(
        round(np.mean([score[name].fmeasure for score in scores]) * 100, 4)
      )
      for name in names
    }
    figures |= {'gen_len': sum(map(len, answers)), 'gen_num': count}
    self.assertEqual(out.splitlines()[-1], str(figures))

  def test_equals_the_official_program_in_all_digits(self):
    with open(llama.BUNDLE.reference, encoding='utf-8') as file:
      tokens = json.load(file)['tokens']
    # An answer that LoadGen logs again does not count.
    log = self._write_log('llama.json', tokens, 'int32', again=3)
    out, _ = self._run(
      mlperf_accuracy_file=log,
      dtype='int32',
      model_name=llama.BUNDLE.model,
      nltk_data=punkt.train(os.path.join(self._dir, 'all')),
    )
    self.assertEqual(out.splitlines()[-1], str(_OFFICIAL_LLAMA))

  def test_nltk_data_of_the_environment(self):
    log = self._write_log('2.json', self._record['tokens'][:2], 'int64')
    os.environ['NLTK_DATA'] = f'/nowhere{os.pathsep}{self._punkt}'
    out, err = self._run(mlperf_accuracy_file=log)
    self.assertIn("'rougeLsum': ", out)
    self.assertNotIn('omitted', err)
    os.environ['NLTK_DATA'] = '/nowhere'
    out, err = self._run(mlperf_accuracy_file=log)
    self.assertNotIn('rougeLsum', out)
    self.assertIn(
      'omitted: There is no tokenizers/punkt_tab/english in /nowhere', err
    )

  def test_verbose_prints_each_pair(self):
    log = self._write_log('2.json', self._record['tokens'][:2], 'int64')
    out, _ = self._run(mlperf_accuracy_file=log, verbose=True)
    article = dataset.load_articles(gptj.BUNDLE.dataset, 2)[1]
    self.assertIn(f'[1] target: {article.output}\n', out)
    self.assertLen(re.findall(r'^\[\d\] answer: ', out, re.MULTILINE), 2)

  def _model(self, **config) -> str:
    directory = os.path.join(self._dir, 'cache', 'models', 'gpt-j-tokenizer')
    os.makedirs(directory, exist_ok=True)
    vocab = {'<eos>': 0, 'do': 1, "n't": 2, '.': 3}
    tokenizers.Tokenizer(
      tokenizers.models.WordLevel(vocab, unk_token='<eos>')
    ).save(os.path.join(directory, 'tokenizer.json'))
    with open(
      os.path.join(directory, 'tokenizer_config.json'), 'w', encoding='utf-8'
    ) as file:
      json.dump(config, file)
    return directory

  def _articles(self) -> str:
    path = os.path.join(self._dir, 'eval.json')
    with open(path, 'w', encoding='utf-8') as file:
      json.dump([{'instruction': 'i', 'input': 'a', 'output': "don't."}], file)
    return path

  def test_tokenizer_of_the_cache_and_its_clean_up(self):
    values = {
      'mlperf_accuracy_file': self._write_log('1.json', [[1, 2, 3]], 'int64'),
      'dataset_file': self._articles(),
    }
    self._model()
    out, _ = self._run(**values)
    self.assertIn("'rouge1': 100.0", out)
    directory = self._model(clean_up_tokenization_spaces=False)
    out, _ = self._run(**values, model_name_or_path=directory)
    self.assertIn("'gen_len': 8", out)

  def test_tells_what_is_missing_or_wrong(self):
    for values, message in (
      ({'dtype': 'int32'}, 'is probably int64'),
      ({'mlperf_accuracy_file': '/no/log.json'}, '/no/log.json'),
      ({'nltk_data': '/nowhere'}, 'Download it with: .* punkt_tab'),
      (
        {'dataset_file': self._articles()},
        r'[\s\S]*hf download EleutherAI[\s\S]*Or pass --checkpoint_path',
      ),
      (
        {
          'dataset_file': self._articles(),
          'checkpoint_path': gptj.BUNDLE.model,
        },
        'answer for sample 511, but the dataset has only 1 articles',
      ),
      ({'checkpoint_path': '/nowhere'}, 'no usable tokenizer.json'),
    ):
      with self.assertRaisesRegex(SystemExit, f'evaluation: .*{message}'):
        self._run(**values)
    with self.assertRaisesRegex(app.UsageError, "'extra'"):
      evaluation.main(('evaluation', 'extra'))

  def test_published_command_line(self):
    done = modules.run(
      'harness.scores.evaluation',
      '--mlperf-accuracy-file',
      self._write_log('2.json', self._record['tokens'][:2], 'int32'),
      '--dataset-file',
      gptj.BUNDLE.dataset,
      '--model-name-or-path',
      gptj.BUNDLE.model,
      '--dtype',
      'int32',
      '--verbose',
    )
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertRegex(done.stdout, r"\n\{'rouge1': .*'gen_num': 2\}\n$")


if __name__ == '__main__':
  absltest.main()
