from absl.testing import absltest
import jax
import jax.numpy as jnp

from benchmarks.tracing import hlo_names
from benchmarks.tracing import trace
from saxml_ext.engine import components


def _event(operation, begin, duration):
  return {
    'ph': 'X',
    'pid': 1,
    'tid': 1,
    'ts': begin,
    'dur': duration,
    'args': {'hlo_module': 'jit_decode', 'hlo_op': operation},
  }


def _operation(*frames):
  return hlo_names.Operation('', '', tuple(hlo_names.Frame(*f) for f in frames))


class TraceTest(absltest.TestCase):
  def test_nested_time_counts_once(self):
    events = [
      _event('while', 0, 100),
      _event('dot', 10, 30),
      _event('cond', 50, 40),
      _event('dot', 60, 20),
      _event('add', 200, 5),
      {'ph': 'X', 'pid': 1, 'tid': 1, 'ts': 0, 'dur': 900, 'name': 'step'},
    ]
    totals = trace.self_seconds(events)
    self.assertAlmostEqual(totals['jit_decode', 'while'][0], 30e-6)
    self.assertAlmostEqual(totals['jit_decode', 'dot'][0], 50e-6)
    self.assertAlmostEqual(totals['jit_decode', 'cond'][0], 20e-6)
    self.assertEqual(totals['jit_decode', 'dot'][1], 2)
    total = sum(seconds for seconds, _ in totals.values())
    self.assertAlmostEqual(total, 105e-6)

  def test_named_functions_exist_in_the_engine(self):
    for name in trace.FUNCTIONS:
      self.assertTrue(callable(getattr(components, name, None)), name)

  def test_operations_know_the_code_that_made_them(self):
    def outer(x):
      return inner(x) + 1

    def inner(x):
      return jnp.tanh(x @ x)

    text = jax.jit(outer).lower(jnp.ones((4, 4))).compile().as_text()
    directory = self.create_tempdir()
    directory.create_file(
      'module_0001.jit_outer.cpu_after_optimizations.txt', content=text
    )
    operations = hlo_names.read(directory.full_path)
    (dot,) = [
      o for o in operations.values() if o.scopes.endswith('dot_general')
    ]
    self.assertEqual(dot.shape, 'f32[4,4]')
    names = [f.function.split('.')[-1] for f in dot.frames[-2:]]
    self.assertEqual(names, ['outer', 'inner'])
    self.assertEqual(dot.frames[-1].file, 'trace_test.py')
    self.assertEqual(dot.frames[-1].code, 'return jnp.tanh(x @ x)')

  def test_labels_come_from_the_innermost_known_frame(self):
    decode = ('model.py', 'decode', 'q, k, v = einsum(spec, h, layer.qkv)')
    einsum = ('einsum.py', 'einsum', 'return _quantized(spec, x, w)')
    rows = ('quant.py', 'quantize_along', 'values = jnp.round(x)')
    attend = ('attention.py', 'attend', 'scores = einsum(q, k)')
    self.assertEqual(trace.label(_operation(decode, einsum)), 'product qkv')
    self.assertEqual(
      trace.label(_operation(decode, einsum, rows)),
      'product qkv: rounding activations',
    )
    self.assertEqual(trace.label(_operation(decode, attend)), 'attention')
    other = ('programs.py', 'decode', 'return step < max_steps')
    self.assertEqual(trace.label(_operation(other)), 'programs.decode')
    self.assertEqual(trace.label(None), 'rest')


if __name__ == '__main__':
  absltest.main()
