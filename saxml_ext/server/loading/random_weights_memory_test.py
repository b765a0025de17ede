"""Tests of the memory check for random weights."""

from absl.testing import absltest
import jax
from jax.sharding import PartitionSpec as P

from saxml_ext.common import errors
from saxml_ext.server import platforms
from saxml_ext.server.loading import random_model

jax.config.update('jax_num_cpu_devices', 4)


def _struct(size: int, spec: P | None = None) -> jax.ShapeDtypeStruct:
  sharding = None
  if spec is not None:
    mesh = jax.make_mesh((4,), ('model',))
    sharding = jax.sharding.NamedSharding(mesh, spec)
  return jax.ShapeDtypeStruct((size,), jax.numpy.int8, sharding=sharding)


class RoomTest(absltest.TestCase):
  def setUp(self):
    super().setUp()
    # Free memory varies, so the sizes differ from it by at least a quarter.
    self.free = platforms.memory_bytes() // 4 * 4

  def test_small_weights_fit(self):
    random_model.check('a.B', [_struct(1000), _struct(1000)])

  def test_larger_weights_are_refused(self):
    with self.assertRaisesRegex(errors.InvalidArgument, '^a.B: .* GiB free'):
      random_model.check('a.B', [_struct(self.free), _struct(self.free)])

  def test_shards_count_once_and_copies_each(self):
    random_model.check('a.B', [_struct(self.free // 2, P('model'))])
    with self.assertRaises(errors.InvalidArgument):
      random_model.check('a.B', [_struct(self.free // 2, P())])


if __name__ == '__main__':
  absltest.main()
