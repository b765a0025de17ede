import hashlib
import json
import os
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import pyarrow
from pyarrow import parquet
import tokenizers

from harness.data import cnn_dailymail


def _rows(count: int, first: int = 0) -> list[dict[str, str]]:
  return [
    {
      'article': f'Article {n} .',
      'highlights': f'First {n} .\nSecond {n} .',
      'id': f'{n:040x}',
    }
    for n in range(first, first + count)
  ]


class CnnDailymailTest(parameterized.TestCase):
  def setUp(self):
    super().setUp()
    self._dir = self.create_tempdir().full_path

  def _path(self, name: str) -> str:
    path = os.path.join(self._dir, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path

  def _parquet(self, name: str, rows) -> str:
    path = self._path(name)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path

  def _text(self, name: str, text: str) -> str:
    path = self._path(name)
    with open(path, 'w', encoding='utf-8') as file:
      file.write(text)
    return path

  def test_finds_the_files_of_a_split_in_their_order(self):
    names = (
      '3.0.0/train-00001-of-00002.parquet',
      '3.0.0/train-00000-of-00002.parquet',
      '3.0.0/validation-00000-of-00001.parquet',
      '3.0.0/validation/0000.parquet',
      '3.0.0/test-00000-of-00001.parquet',
      '3.0.0/validation.txt',
      '.cache/validation-00000-of-00001.parquet',
    )
    for name in names:
      self._text(name, '')
    articles = cnn_dailymail.find([self._dir], cnn_dailymail.TRAIN)
    self.assertEqual(articles, [self._path(names[1]), self._path(names[0])])
    articles = cnn_dailymail.find([self._dir], cnn_dailymail.VALIDATION)
    self.assertEqual(articles, [self._path(names[2]), self._path(names[3])])
    one = self._path(names[2])
    articles = cnn_dailymail.find([one], cnn_dailymail.VALIDATION)
    self.assertEqual(articles, [one])
    with self.assertRaisesRegex(FileNotFoundError, '/no/where does not exist'):
      cnn_dailymail.find(['/no/where'], cnn_dailymail.TRAIN)

  def test_parquet_and_json_give_the_same_rows(self):
    rows = _rows(5)
    lines = '\n'.join(map(json.dumps, rows))
    for path in (
      self._parquet('a.parquet', rows),
      self._text('a.json', json.dumps(rows, indent=1)),
      self._text('a.jsonl', lines),
      self._text('lines.json', lines),
    ):
      self.assertEqual(list(cnn_dailymail.rows(path)), rows)

  def test_rows_that_cannot_be_used(self):
    cut = self._parquet('cut.parquet', _rows(100))
    os.truncate(cut, os.path.getsize(cut) // 2)
    for path, message in (
      (cut, 'cut.parquet cannot be read as parquet'),
      (
        self._parquet('b.parquet', [{'article': 'a', 'id': 'b'}]),
        "no column 'highlights'",
      ),
      (
        self._parquet('c.parquet', [_rows(1)[0] | {'id': None}]),
        "Article 0 has no text 'id'",
      ),
      (self._text('d.json', '{"article": '), 'neither a JSON list nor'),
      (self._text('e.jsonl', '["a"]'), "Article 0 has no text 'article'"),
    ):
      with self.assertRaisesRegex(ValueError, message):
        list(cnn_dailymail.rows(path))

  def test_evaluation_set_is_the_whole_split_in_its_order(self):
    half = cnn_dailymail.EVAL_COUNT // 2
    paths = [
      self._parquet('validation-0.parquet', _rows(half)),
      self._parquet('validation-1.parquet', _rows(half, half)),
    ]
    entries = cnn_dailymail.evaluation_set(paths)
    self.assertLen(entries, 13368)
    self.assertEqual(
      list(entries[7000].items()),
      [
        ('instruction', 'Summarize the following news article:'),
        ('input', 'Article 7000 .'),
        ('output', 'First 7000 .\nSecond 7000 .'),
      ],
    )
    with self.assertRaisesRegex(ValueError, 'has 13368 .* has 6684. Pass'):
      cnn_dailymail.evaluation_set(paths[:1])

  def test_refuses_the_older_versions_which_are_in_lower_case(self):
    rows = [
      {name: text.lower() for name, text in row.items()}
      for row in _rows(cnn_dailymail.EVAL_COUNT)
    ]
    path = self._parquet('validation-0.parquet', rows)
    with self.assertRaisesRegex(ValueError, 'version 1.0.0 or 2.0.0'):
      cnn_dailymail.evaluation_set([path])

  def test_calibration_set_follows_the_list(self):
    paths = [
      self._parquet('train-0.parquet', _rows(30)),
      self._parquet('train-1.parquet', _rows(30, 30)),
    ]
    ids = [f'{n:040x}' for n in (45, 3, 45)]
    entries = cnn_dailymail.calibration_set(paths, ids)
    self.assertEqual(
      [entry['input'] for entry in entries],
      ['Article 45 .', 'Article 3 .', 'Article 45 .'],
    )
    with self.assertRaisesRegex(
      ValueError, '1 of 2 articles .* has 30 of the 287113'
    ):
      cnn_dailymail.calibration_set(paths[:1], ids)
    with self.assertRaisesRegex(ValueError, 'not in any file'):
      cnn_dailymail.calibration_set([], ids)

  def test_reads_the_published_list_only(self):
    text = 'id1\nid2\n'
    published = hashlib.sha256(text.encode()).hexdigest()
    with mock.patch.object(cnn_dailymail, 'LIST_SHA256', published):
      # A checkout by git may have changed the line ends.
      for form in (text, text.strip(), text.replace('\n', '\r\n')):
        path = self._text('list.txt', form)
        self.assertEqual(cnn_dailymail.read_ids(path), ['id1', 'id2'])
    with self.assertRaisesRegex(
      ValueError, 'has 2 ids .* the benchmark has 1000 with 4de1bc2b'
    ):
      cnn_dailymail.read_ids(path)

  def test_writes_the_bytes_of_the_published_script(self):
    entries = [
      cnn_dailymail.entry(
        {'article': 'caf\u00e9 "\u2028"', 'highlights': 'a\nb', 'id': 'x'}
      )
    ]
    path = self._path('out/cnn_eval.json')
    cnn_dailymail.write(path, entries)
    with open(path, encoding='utf-8') as file:
      self.assertEqual(
        file.read(),
        '[\n    {\n        "instruction": "Summarize the following news'
        ' article:",\n        "input": "caf\u00e9 \\"\\u2028\\"",\n'
        '        "output": "a\\nb"\n    }\n]',
      )
    with open(path, encoding='utf-8') as file:
      self.assertEqual(json.load(file), entries)

  def test_edge_set_is_the_published_draw(self):
    # The `datasets` package draws these for shuffle(seed=42) of 13,368 rows.
    entries = [{'input': str(n)} for n in range(cnn_dailymail.EVAL_COUNT)]
    chosen = [int(entry['input']) for entry in cnn_dailymail.edge_set(entries)]
    self.assertLen(set(chosen), 5000)
    self.assertEqual(chosen[:5], [1517, 10554, 910, 12519, 158])

  def test_token_ids_follow_the_article(self):
    tokenizer = tokenizers.Tokenizer(
      tokenizers.models.WordLevel({'?': 0, 'Article': 1}, unk_token='?')
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    entries = [cnn_dailymail.entry(row) for row in _rows(600)]
    articles = list(
      cnn_dailymail.with_tokens(iter(entries), tokenizer, {'llama': 'x'})
    )
    self.assertLen(articles, 600)
    self.assertEqual(
      list(articles[599]), ['instruction', 'input', 'tok_input', 'output']
    )
    self.assertEqual(articles[599]['input'], 'Article 599 .')
    self.assertEqual(articles[599]['tok_input'].count(1), 2)
    path = self._path('out/cnn_eval.json')
    cnn_dailymail.write(path, articles[:2])
    with open(path, encoding='utf-8') as file:
      text = file.read()
    self.assertEqual(text, json.dumps(articles[:2], indent=4))

  def test_leaves_no_half_of_a_file(self):
    path = self._path('out/cnn_eval.json')
    with self.assertRaises(UnicodeEncodeError):
      cnn_dailymail.write(path, [{'input': '\ud800'}])
    self.assertEmpty(os.listdir(os.path.dirname(path)))


if __name__ == '__main__':
  absltest.main()
