"""Tests that only listed files know a family of models by name.

A new family is then one module and a line in `all.py`; see docs/families.md.
"""

import ast
import pathlib
import re

from absl.testing import absltest

from saxml_ext.families import all as families
from tests.house import imports
from tests.house import tree

_FAMILIES = pathlib.PurePath('saxml_ext/families')
# The modules of that folder that belong to no family.
_SHARED = (
  *('all', 'family', 'layout', 'praxis_models', 'servable'),
  *('hf_config', 'hf_details', 'hf_entries', 'hf_rotary'),
)
# The other files that may name families, or import their modules, and why.
_LISTED = {
  'converters/hf/gguf_config.py': 'the names of architectures in GGUF files',
  'converters/hf/gguf_tokenizer.py': 'the names of tokenizers in GGUF files',
  'converters/convert/meta_checkpoint.py': "the format of Meta's Llama",
  'converters/convert_gptj_ckpt.py': 'has the name of a family, as in Sax',
  'converters/convert_llama_ckpt.py': 'has the name of a family, as in Sax',
  'converters/random_gptj.py': 'has the name of a family',
  'harness/benchmarks/gptj.py': 'a benchmark of MLPerf',
  'harness/benchmarks/llama.py': 'a benchmark of MLPerf',
  'harness/data/checks.py': "the checkpoints of MLPerf's benchmarks",
  'harness/data/cnn_dailymail.py': 'a template of MLPerf',
  'harness/data/official.py': "the files of MLPerf's benchmarks",
  'harness/scores/evaluation.py': "the files of MLPerf's benchmarks",
  'saxml_ext/params/gptj.py': 'the name of a module in stock Sax',
  'saxml_ext/params/lm_cloud.py': 'the name of a module in stock Sax',
  'saxml_ext/params/published.py': 'the module of classes in stock Sax',
  'saxml_ext/params/template.py': 'the default of serving params',
  'saxml_ext/pax/description.py': 'the default of old checkpoints',
  'serve/programs.py': 'the bundled models',
}
# The folders of programs that measure, and that make the bundled models.
_OUTSIDE = ('benchmarks', 'bundled', 'third_party')


def _is_named(path: pathlib.PurePath, names: set[str]) -> bool:
  """Returns True if a file has a name in quotes, or imports such a module."""
  parsed = ast.parse((tree.ROOT / path).read_text(encoding='utf-8'))
  return any(
    isinstance(node, ast.Constant) and node.value in names
    for node in ast.walk(parsed)
  ) or any(
    other.parent == _FAMILIES and other.stem not in _SHARED
    for other in imports.imported(path)
  )


class FamiliesTest(absltest.TestCase):
  def test_only_listed_files_know_a_family_by_name(self):
    names = {*families.FAMILIES, *families.model_types()}
    paths = [
      str(path)
      for path in tree.files('*.py')
      if tree.is_production(path)
      and path.parts[0] not in _OUTSIDE
      and _FAMILIES not in path.parents
      and _is_named(path, names)
    ]
    self.assertCountEqual(paths, _LISTED)

  def test_page_lists_every_family(self):
    page = (tree.ROOT / 'docs/families.md').read_text(encoding='utf-8')
    models, *sections = page.split('\n## ')
    [platforms] = [s for s in sections if s.startswith('What runs where')]
    for text in (models, platforms):
      rows = [line for line in text.splitlines() if line.startswith('|')]
      names = re.findall('`([^`]+)`', '\n'.join(rows))
      heading = text.partition('\n')[0]
      self.assertContainsSubset(
        families.model_types(), names, f'docs/families.md: {heading}'
      )


if __name__ == '__main__':
  absltest.main()
