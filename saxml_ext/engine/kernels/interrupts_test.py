"""Tests of the flags that stop a running program."""

import threading

from absl.testing import absltest
import jax
import jax.numpy as jnp

from saxml_ext.engine.kernels import interrupts


@jax.jit
def _count(number, most):
  """Counts to `most`, or until the flag is raised."""
  return jax.lax.while_loop(
    lambda i: (i < most) & ~interrupts.is_raised(number, i),
    lambda i: i + 1,
    jnp.int32(0),
  )


class InterruptTest(absltest.TestCase):
  def test_a_raised_flag_stays_up_until_it_is_taken_down(self):
    flag, other = interrupts.Flag(), interrupts.Flag()
    other.set(up=True)
    self.assertEqual(_count(flag.number, 5), 5)
    flag.set(up=True)
    self.assertEqual(_count(flag.number, 5), 0)
    self.assertEqual(_count(flag.number, 5), 0)
    flag.set(up=False)
    self.assertEqual(_count(flag.number, 5), 5)

  def test_raised_flag_stops_a_running_program(self):
    flag = interrupts.Flag()
    # Without the flag the count would take minutes.
    most = 2**31 - 1
    _count(flag.number, 1)  # Compiles the program.
    counted = []
    runner = threading.Thread(
      target=lambda: counted.append(int(_count(flag.number, most)))
    )
    runner.start()
    flag.set(up=True)
    runner.join()
    self.assertLess(counted[0], most)

  def test_devices_of_a_mesh_ignore_flags(self):
    flag = interrupts.Flag()
    flag.set(up=True)
    mesh = jax.make_mesh((1,), ('x',), (jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh):
      self.assertEqual(_count(flag.number, 5), 5)


if __name__ == '__main__':
  absltest.main()
