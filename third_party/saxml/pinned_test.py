"""Tests our params with the real sources of the branch mlperf4.0.

The variable SAXML_CHECKOUT names a checkout of the pinned commit:

  ./bazelw test --test_env=SAXML_CHECKOUT=DIR //third_party/saxml:pinned_test

The overlay is laid over a copy of the sources. They run on the locked packages,
with stand-ins for the packages and compiled modules that only a server uses.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import types

from absl.testing import absltest
from absl.testing import parameterized
from flax.training import checkpoints  # noqa: F401 It must not see TensorFlow.
from grpc_tools import protoc

from saxml_ext.params.testing import upstream_facts
from saxml_ext.pax import compat
from third_party.saxml import tree
from third_party.saxml.testing import descriptors
from third_party.saxml.testing import record

_CHECKOUT = 'SAXML_CHECKOUT'
_PACKAGE = 'saxml.server.pax.lm.params.'
_FACTS = upstream_facts.load('mlperf4.0')
# Modules that are not installed, and their names that an import needs.
_STAND_INS = {
  'jax.experimental.host_callback': (),
  'orbax.export': ('TensorSpecWithDefault',),
  'saxml.common.python.pybind_location': (),
  'saxml.server.tf.np_tf_sess_wrapper': (
    'wrap_tf_session',
    'wrap_tf_session_class_member',
  ),
  'seqio': ('SentencePieceVocabulary', 'Vocabulary'),
  'tensorflow': ('Tensor', 'TensorSpec'),
}


def _stand_in(name: str) -> None:
  module = types.ModuleType(name)
  module.__spec__ = importlib.machinery.ModuleSpec(name, None)
  vars(module).update({key: type(key, (), {}) for key in _STAND_INS[name]})
  sys.modules[name] = module
  parent, _, child = name.rpartition('.')
  if parent:
    setattr(importlib.import_module(parent), child, module)


def _compile(root: pathlib.Path) -> None:
  """Generates the Python modules of the protocol, as upstream's Bazel does."""
  protos = [str(path) for path in (root / 'saxml/protobuf').glob('*.proto')]
  out = [f'--python_out={root}', f'--grpc_python_out={root}']
  assert not protoc.main(['', f'-I{root}', *out, *protos])


class PinnedTest(parameterized.TestCase):
  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    path = os.environ.get(_CHECKOUT, '')
    cls.checkout = pathlib.Path(path)
    if not cls.checkout.is_absolute():
      raise ValueError(
        f'{_CHECKOUT} is {path!r}. Set it to the absolute path of'
        ' a checkout of the branch mlperf4.0 of tpu-inference/saxml, with'
        f' --test_env={_CHECKOUT}=DIR.'
      )
    cls.root = pathlib.Path(absltest.TEST_TMPDIR.value, 'workspace')
    tree.lay(cls.checkout, cls.root)
    _compile(cls.root)
    compat.install_paxml()
    sys.path.insert(0, str(cls.root))
    for name in _STAND_INS:
      _stand_in(name)
    importlib.import_module('saxml.gptj_overlay.gptj')
    registry = importlib.import_module('saxml.server.servable_model_registry')
    cls.servables = dict(registry.get_all())
    cls.params = importlib.import_module('saxml_ext.params.registry')

  def test_modules_come_from_the_copy(self):
    packages = ('saxml.', 'saxml_ext.params.', 'saxml_ext.families.')
    for name, module in list(sys.modules.items()):
      if name.startswith(packages) and '.testing' not in name:
        if module.__spec__.origin is not None:
          self.assertIn(self.root, pathlib.Path(module.__file__).parents)

  def test_every_published_name_is_registered(self):
    expected = [n for n in self.params.names() if n.startswith(_PACKAGE)]
    self.assertLen(expected, 15)
    self.assertCountEqual(self.servables, expected)

  def test_every_class_builds_its_task(self):
    for name, servable in self.servables.items():
      with self.subTest(name):
        params = self.params.lookup(name)
        task = servable().task()
        model = task.model.lm_tpl
        self.assertEqual(model.vocab_size, params.VOCAB_SIZE)
        self.assertEqual(model.model_dims, params.MODEL_DIMS)
        quantized = 'QuantizationParams' in str(task)
        self.assertEqual(quantized, params.QUANTIZATION != 'none')

  @parameterized.parameters(*_FACTS.classes)
  def test_attributes_are_as_recorded(self, name):
    servable = self.servables[f'{_PACKAGE}gptj.{name}']
    for attribute, value in _FACTS.classes[name].attributes.items():
      actual = getattr(servable, attribute)
      if isinstance(actual, type):
        actual = actual.__name__
      self.assertEqual(actual, value, attribute)

  def test_protocol_is_as_recorded(self):
    self.assertEqual(
      record.protocol(self.checkout), descriptors.recorded('mlperf4.0')
    )


if __name__ == '__main__':
  absltest.main()
