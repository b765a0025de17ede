"""Lists the official files of the benchmarks, with paths and fetch commands.

Nothing here fetches a file. The error for a missing file has the commands that
fetch it, so that the user decides about licenses and disk space.
"""

from collections.abc import Callable
import dataclasses
import functools
import os

from harness.caching import cache as cache_lib
from harness.data import checks
from harness.data import cnn_dailymail

BENCHMARKS = ('gptj', 'bert', 'llama3.1-8b')

# The downloads have their own folder, so that they can be removed after the
# conversion.
_HUB = 'cnn_dailymail_hub'
_CHECKPOINT = 'gpt-j'
_LLAMA = 'llama3.1-8b'
_INFERENCE = 'https://raw.githubusercontent.com/mlcommons/inference/v4.1'
_ZENODO = 'https://zenodo.org/record'
_R2_DOWNLOADER = (
  'bash <(curl -s https://raw.githubusercontent.com/mlcommons/r2-downloader/'
  'refs/heads/main/mlc-r2-downloader.sh)'
)
_R2_METADATA = 'https://inference.mlcommons-storage.org/metadata'


def itself(path: str) -> str | None:
  """Returns `path` if it is a file, else None."""
  return path if os.path.isfile(path) else None


def containing(name: str, path: str) -> str | None:
  """Returns the first directory in or below `path` that has a file, or None.

  Args:
    name: The name of the file.
    path: The directory to search.
  """
  for folder, folders, files in os.walk(path):
    folders.sort()
    if name in files:
      return folder
  return None


@dataclasses.dataclass(frozen=True)
class Item:
  """An official file or directory.

  Attributes:
    benchmark: The benchmark, one of BENCHMARKS.
    name: The name of the item, unique in its benchmark.
    what: The description for messages.
    path: The path of the item in the cache.
    commands: The shell commands that fetch the item. {data} and {models} stand
      for the folders of the cache, {run} for the flag that makes our programs
      use the cache.
    check: The function that checks the path and returns a description. It
      raises ValueError if the item is not the official one.
    find: The function that returns the part of the path to use, or None.
    md5: The published MD5; '' if none is published.
    optional: True if the benchmark runs without the item.
  """

  benchmark: str
  name: str
  what: str
  path: str
  commands: tuple[str, ...]
  check: Callable[[str], str]
  find: Callable[[str], str | None] = itself
  md5: str = ''
  optional: bool = False

  def cache_path(self, cache: cache_lib.Cache) -> str:
    """Returns the path of the item in the cache."""
    return os.path.join(cache.root, self.path)

  def usable_path(self, cache: cache_lib.Cache) -> str | None:
    """Returns the path to use if the item is in the cache, or None."""
    return self.find(self.cache_path(cache))

  def instructions(self, cache: cache_lib.Cache) -> list[str]:
    """Returns the commands that fetch the item into this cache."""
    default = cache.root == cache_lib.root()
    return [
      command.format(
        data=_quoted(cache.data),
        models=_quoted(cache.models),
        run='' if default else f' --cache_dir={_quoted(cache.root)}',
      )
      for command in self.commands
    ]


def _quoted(path: str) -> str:
  return f"'{path}'" if set(path) & set(' ()&;$') else path


def _tokenizer(path: str) -> str | None:
  """Returns a directory with a tokenizer, or None.

  The tokenizer is in `path` or beside the fine-tuned weights.
  """
  for directory in (path, os.path.join(os.path.dirname(path), _CHECKPOINT)):
    for name in ('tokenizer.json', 'vocab.json'):
      folder = containing(name, directory)
      if folder:
        return folder
  return None


def _curl(path: str, url: str) -> str:
  return f'curl -fL --create-dirs -o {path} {url}'


def _file(
  name: str,
  what: str,
  path: str,
  url: str,
  md5: str,
  check: Callable[..., str] | None = None,
) -> Item:
  """Returns an item of BERT that is checked by its MD5.

  Args:
    name: The name of the item.
    what: The description for messages.
    path: The path of the item in the cache.
    url: The address of the published file.
    md5: The MD5 that is published, or that of the published file.
    check: The function that checks a path with the argument `md5`. None checks
      only the MD5, and the benchmark runs without the item.
  """
  folder, _, rest = path.partition('/')
  return Item(
    'bert',
    name,
    what,
    path,
    (_curl(f'{{{folder}}}/{rest}', url),),
    functools.partial(check or checks.by_md5, md5=md5),
    md5=md5,
    optional=check is None,
  )


def _inside(name: str, path: str) -> str | None:
  """Returns the first file with a name in or below a directory, or None."""
  folder = containing(name, path)
  return folder and os.path.join(folder, name)


def _llama_set(name: str, what: str, file: str, uri: str, count: int) -> Item:
  """Returns a data set of Llama, which has the token ids of its prompts.

  Args:
    name: The name of the item.
    what: The description for messages.
    file: The name of the file.
    uri: The name of the file for MLCommons' downloader.
    count: The number of articles.
  """
  return Item(
    _LLAMA,
    name,
    what,
    f'data/{cnn_dailymail.LLAMA_FOLDER}',
    (
      f'{_R2_DOWNLOADER} -d {{data}}/{cnn_dailymail.LLAMA_FOLDER}'
      f' {_R2_METADATA}/llama3-1-8b-{uri}.uri',
    ),
    functools.partial(checks.articles, count=count, llama=True),
    functools.partial(_inside, file),
    optional=name != 'dataset',
  )


# Source of the MD5s: script/get-dataset-squad, get-dataset-squad-vocab and
# get-ml-model-bert-large-squad of mlcommons/mlperf-automations, which download
# and verify the same files. The MD5s of files in mlcommons/inference are
# computed from the files, which are the same since v3.1. Neither repository
# publishes a checksum of cnn_eval.json.
ITEMS = (
  Item(
    'gptj',
    'dataset',
    'CNN/DailyMail 3.0.0, validation split, 13368 articles',
    f'data/cnn_dailymail/{cnn_dailymail.EVAL_FILE}',
    (
      'hf download abisee/cnn_dailymail --repo-type dataset --include'
      f" '3.0.0/validation-*' --local-dir {{data}}/{_HUB}",
      './bazelw run //harness/data:prepare_cnn_dailymail --'
      f' --input={{data}}/{_HUB}{{run}}',
    ),
    functools.partial(checks.articles, count=cnn_dailymail.EVAL_COUNT),
  ),
  Item(
    'gptj',
    'calibration',
    'CNN/DailyMail 3.0.0, 1000 articles of the train split to calibrate with',
    f'data/cnn_dailymail/{cnn_dailymail.CALIBRATION_FILE}',
    (
      'hf download abisee/cnn_dailymail --repo-type dataset --include'
      f" '3.0.0/train-*' --local-dir {{data}}/{_HUB}",
      _curl(
        '{data}/cnn_dailymail/calibration-list.txt',
        f'{_INFERENCE}/language/gpt-j/calibration-list.txt',
      ),
      './bazelw run //harness/data:prepare_cnn_dailymail --'
      f' --input={{data}}/{_HUB}'
      ' --calibration_list={data}/cnn_dailymail/calibration-list.txt{run}',
    ),
    functools.partial(checks.articles, count=cnn_dailymail.CALIBRATION_COUNT),
    optional=True,
  ),
  Item(
    'gptj',
    'tokenizer',
    "GPT-J's tokenizer",
    'models/gpt-j-tokenizer',
    (
      'hf download EleutherAI/gpt-j-6b tokenizer.json tokenizer_config.json'
      ' vocab.json merges.txt added_tokens.json special_tokens_map.json'
      ' --local-dir {models}/gpt-j-tokenizer',
    ),
    checks.gptj_tokenizer,
    _tokenizer,
  ),
  Item(
    'gptj',
    'checkpoint',
    'GPT-J 6B, fine-tuned on CNN/DailyMail by MLCommons, PyTorch',
    f'models/{_CHECKPOINT}',
    (
      f'{_R2_DOWNLOADER} -d {{models}}/gpt-j'
      f' {_R2_METADATA}/gpt-j-model-checkpoint.uri',
    ),
    checks.gptj_checkpoint,
    functools.partial(containing, 'config.json'),
    optional=True,
  ),
  _file(
    'dataset',
    'SQuAD v1.1, dev set, 10570 questions',
    'data/squad/dev-v1.1.json',
    'https://raw.githubusercontent.com/rajpurkar/SQuAD-explorer/master/dataset/'
    'dev-v1.1.json',
    '3e85deb501d4e538b6bc56f786231552',
    checks.squad,
  ),
  _file(
    'vocab',
    'vocabulary of BERT-Large uncased, 30522 words',
    'data/squad/vocab.txt',
    f'{_ZENODO}/3733868/files/vocab.txt',
    '64800d5d8528ce344256daf115d4965e',
    checks.vocabulary,
  ),
  _file(
    'calibration',
    'indices of 100 features of the dev set to calibrate with',
    'data/squad/bert_calibration_features.txt',
    f'{_INFERENCE}/calibration/SQuAD-v1.1/bert_calibration_features.txt',
    '81fa69eb66f72831edccb624133bb4b3',
  ),
  _file(
    'config',
    'configuration of BERT-Large',
    'models/bert/bert_config.json',
    f'{_INFERENCE}/language/bert/bert_config.json',
    '7f59165e21b7d566db610ff6756c926b',
  ),
  _file(
    'onnx',
    'BERT-Large, ONNX, float32 (F1 90.874)',
    'models/bert/model.onnx',
    f'{_ZENODO}/3733910/files/model.onnx',
    '819b25b19cd8e59080c10892689750ca',
  ),
  _file(
    'onnx_int8',
    'BERT-Large, ONNX, fine-tuned for int8 (F1 90.067)',
    'models/bert/bert_large_v1_1_fake_quant.onnx',
    f'{_ZENODO}/3750364/files/bert_large_v1_1_fake_quant.onnx',
    '45f88ffb2915362242703c85c38ec2d4',
  ),
  _file(
    'pytorch',
    'BERT-Large, PyTorch, float32 (F1 90.874)',
    'models/bert/model.pytorch',
    f'{_ZENODO}/3733896/files/model.pytorch',
    '00fbcbfaebfa20d87ac9885120a6e9b4',
  ),
  _llama_set(
    'dataset',
    'CNN/DailyMail 3.0.0, validation split, 13368 articles with token ids',
    cnn_dailymail.EVAL_FILE,
    'cnn-eval',
    cnn_dailymail.EVAL_COUNT,
  ),
  _llama_set(
    'dataset_edge',
    '5000 of these articles, the set of llama3.1-8b-edge',
    cnn_dailymail.EDGE_FILE,
    'sample-cnn-eval-5000',
    cnn_dailymail.EDGE_COUNT,
  ),
  _llama_set(
    'calibration',
    '1000 articles of the train split to calibrate with, with token ids',
    cnn_dailymail.CALIBRATION_FILE,
    'cnn-dailymail-calibration',
    cnn_dailymail.CALIBRATION_COUNT,
  ),
  Item(
    _LLAMA,
    'checkpoint',
    'Llama 3.1 8B Instruct and its tokenizer (accept its license on the hub)',
    f'models/{_LLAMA}',
    # The revision of the reference. Source: language/llama3.1-8b/README.md.
    (
      'hf download meta-llama/Llama-3.1-8B-Instruct --revision'
      " be673f326cab4cd22ccfef76109faf68e41aa5f1 --exclude 'original/*'"
      f' --local-dir {{models}}/{_LLAMA}',
    ),
    checks.llama_checkpoint,
    functools.partial(containing, 'config.json'),
    optional=True,
  ),
)


def item(benchmark: str, name: str) -> Item:
  """Returns the item with a name.

  Raises:
    ValueError: There is no such item.
  """
  items = {entry.name: entry for entry in ITEMS if entry.benchmark == benchmark}
  if name in items:
    return items[name]
  raise ValueError(
    f'The benchmark {benchmark!r} has no item {name!r}. Choose one of'
    f' {", ".join(items or BENCHMARKS)}.'
  )


def path(benchmark: str, name: str, cache: cache_lib.Cache) -> str:
  """Returns the path of an official file or directory.

  Args:
    benchmark: The benchmark, one of BENCHMARKS.
    name: The name of the item.
    cache: The cache to search.

  Raises:
    ValueError: The item is missing. The text has the commands that fetch it.
  """
  entry = item(benchmark, name)
  usable = entry.usable_path(cache)
  if usable is None:
    lines = '\n'.join(f'  {line}' for line in entry.instructions(cache))
    raise ValueError(
      f'{entry.what}: {entry.cache_path(cache)} does not exist. Fetch it'
      f' with:\n{lines}'
    )
  return usable
